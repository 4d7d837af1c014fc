package e2b

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agbox-dev/agbox/sdk"
)

const maxPage = 100

// cursor is where a page ends; what comes after it in this order is the next one.
type cursor struct {
	Order string    `json:"order"`
	At    time.Time `json:"at"`
	ID    string    `json:"id"`
}

func (k cursor) compare(at time.Time, id string) int {
	return cmp.Or(k.At.Compare(at), strings.Compare(k.ID, id))
}

func (k cursor) String() string {
	text, _ := json.Marshal(k) // it has nothing that JSON has not
	return base64.RawURLEncoding.EncodeToString(text)
}

func cursorOf(token, order string) (k cursor, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil || k.Order != order {
		return cursor{}, refused(http.StatusBadRequest, "nextToken is none that a list in the order %q gave", order)
	}
	return k, nil
}

// listQuery is what a list is asked for.
type listQuery struct {
	metadata map[string]string
	states   []string
	template string
	after    time.Time
	order    string
	limit    int
	from     *cursor
}

func (c *call) listQuery() (listQuery, error) {
	q := c.URL.Query()
	metadata, err := metadataOf(q.Get("metadata"))
	if err != nil {
		return listQuery{}, err
	}
	l := listQuery{metadata: metadata, template: q.Get("template"), order: cmp.Or(q.Get("order"), "desc")}
	for _, states := range q["state"] {
		l.states = append(l.states, strings.Split(states, ",")...)
	}
	for _, state := range l.states {
		if state != running && state != paused {
			return l, refused(http.StatusBadRequest, "state is %q: give running, paused or both", state)
		}
	}
	if len(l.states) == 0 {
		l.states = []string{running, paused}
	}
	if l.order != "asc" && l.order != "desc" {
		return l, refused(http.StatusBadRequest, "order is %q: give asc or desc", l.order)
	}
	if after := q.Get("startedAfter"); after != "" {
		if l.after, err = time.Parse(time.RFC3339Nano, strings.ReplaceAll(after, " ", "+")); err != nil {
			return l, refused(http.StatusBadRequest, "startedAfter is %q: give a time as in RFC 3339", after)
		}
	}
	if strings.Contains(l.template, ":") && !strings.Contains(l.template, "/") {
		return l, refused(http.StatusBadRequest, "template is %q: leave the tag out", l.template)
	}
	limit, err := c.number("limit", maxPage, 1, maxPage)
	if err != nil {
		return l, err
	}
	l.limit = int(limit)
	if token := q.Get("nextToken"); token != "" {
		from, err := cursorOf(token, l.order)
		if err != nil {
			return l, err
		}
		l.from = &from
	}
	return l, nil
}

// metadataOf reads a filter, in which keys and values are escaped, and then the whole once more.
func metadataOf(text string) (map[string]string, error) {
	wanted := map[string]string{}
	whole, err := url.QueryUnescape(text)
	if text == "" || err != nil {
		return wanted, badMetadata(text, err)
	}
	for pair := range strings.SplitSeq(whole, "&") {
		key, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(key)
		if err != nil {
			return nil, badMetadata(text, err)
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, badMetadata(text, err)
		}
		if key != "" {
			wanted[key] = value
		}
	}
	return wanted, nil
}

func badMetadata(text string, err error) error {
	if err == nil {
		return nil
	}
	return refused(http.StatusBadRequest, "metadata is %q: %s", text, err)
}

// fits reports whether a sandbox is one that is asked for, whatever page it is on.
func (l listQuery) fits(b box) bool {
	return slices.Contains(l.states, b.state) && carries(b.note.metadata(b.Labels), l.metadata) &&
		(l.template == "" || l.template == b.Template || l.template == b.Alias) &&
		!b.CreatedAt.Truncate(time.Microsecond).Before(l.after.Truncate(time.Microsecond))
}

// boxes are the sandboxes that the query asks for, in its order, on whatever page.
func (c *call) boxes(l listQuery) ([]box, error) {
	labels := metadataLabels(l.metadata)
	labels[LabelKind] = KindSandbox
	found, err := c.client.ListSandboxes(c.Context(), sdk.Filter{Labels: labels, States: agboxStates(l.states)})
	if err != nil {
		return nil, err
	}
	var boxes []box
	for _, s := range found {
		if b, ours := boxOf(s); ours && l.fits(b) {
			boxes = append(boxes, b)
		}
	}
	slices.SortFunc(boxes, func(a, b box) int {
		order := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
		if l.order == "desc" {
			return -order
		}
		return order
	})
	return boxes, nil
}

func (c *call) list() (int, any, error) {
	l, err := c.listQuery()
	if err != nil {
		return 0, nil, err
	}
	boxes, err := c.boxes(l)
	if err != nil {
		return 0, nil, err
	}
	page, more := []listed{}, false
	var last cursor
	for _, b := range boxes {
		if l.from != nil {
			if order := l.from.compare(b.CreatedAt, b.ID); order == 0 || (order > 0) == (l.order == "asc") {
				continue
			}
		}
		if more = len(page) == l.limit; more {
			break
		}
		page, last = append(page, b.listed()), cursor{l.order, b.CreatedAt, b.ID}
	}
	if more {
		c.header.Set("X-Next-Token", last.String())
	}
	return http.StatusOK, page, nil
}

// listRunning is the older list: of all that run.
func (c *call) listRunning() (int, any, error) {
	metadata, err := metadataOf(c.URL.Query().Get("metadata"))
	if err != nil {
		return 0, nil, err
	}
	boxes, err := c.boxes(listQuery{metadata: metadata, states: []string{running}, order: "desc"})
	page := []listed{}
	for _, b := range boxes {
		page = append(page, b.listed())
	}
	return http.StatusOK, page, err
}
