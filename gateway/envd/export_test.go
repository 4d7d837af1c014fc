package envd

// Fill has as many streams of a sandbox counted as may be open, until release is called.
func Fill(h *Handler, id string) (release func()) {
	var all []func()
	for one, ok := h.streams.Take(id); ok; one, ok = h.streams.Take(id) {
		all = append(all, one)
	}
	return func() {
		for _, one := range all {
			one()
		}
	}
}
