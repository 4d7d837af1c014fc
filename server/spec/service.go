package spec

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// A service name is a host name on the sandbox's network and part of a container's name.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)

// The engine refuses healthcheck times between 0 and this.
const shortestHealthcheck = time.Millisecond

func (r *resolver) services() error {
	spec, taken := r.out.Spec, map[string]string{}
	for i, s := range spec.RequiredServices {
		if err := r.service(element("create_spec.required_services", i), s, true, taken); err != nil {
			return err
		}
	}
	for i, s := range spec.OptionalServices {
		if err := r.service(element("create_spec.optional_services", i), s, false, taken); err != nil {
			return err
		}
	}
	return nil
}

// service checks one service; taken holds the field of each name so far, in lower case, as names
// of hosts do not differ by case.
func (r *resolver) service(field string, s *agboxv1.ServiceSpec, required bool, taken map[string]string) error {
	name := s.GetName()
	if name == "" {
		return refuse(ReasonServiceNameRequired, field+".name", "the service has no name; name it, the sandbox reaches it as a host of that name")
	}
	if !serviceName.MatchString(name) {
		return refuse(ReasonServiceNameInvalid, field+".name",
			"%s cannot be a host name; use 1 to 63 letters, digits, '_', '.' and '-', starting with a letter or digit", quote(name))
	}
	if other, ok := taken[strings.ToLower(name)]; ok {
		return refuse(ReasonServiceNameRepeated, field+".name",
			"%s is the name of %s already (case does not count); choose another", quote(name), other)
	}
	taken[strings.ToLower(name)] = field
	if err := cmp.Or(
		validateImage(field+".image", s.Image, ReasonServiceImageRequired),
		validateEnvs(field+".envs", s.Envs),
		r.container(field, s, targets{}),
	); err != nil {
		return err
	}
	check := s.Healthcheck
	if check == nil && required {
		return refuse(ReasonHealthcheckRequired, field+".healthcheck",
			"the required service %s has no healthcheck, so nobody could tell when it is ready; add one or make it optional", quote(name))
	}
	if check != nil {
		if err := validateHealthcheck(field+".healthcheck", check, required); err != nil {
			return err
		}
	}
	if len(s.PostStartOnPrimary) == 0 {
		return nil
	}
	if check == nil || check.Test[0] == "NONE" {
		return refuse(ReasonHealthcheckRequired, field+".healthcheck",
			"post_start_on_primary of %s runs once the service is healthy, and it has no healthcheck; add one", quote(name))
	}
	for i, command := range s.PostStartOnPrimary {
		if strings.TrimSpace(command) == "" || strings.ContainsRune(command, 0) {
			return refuse(ReasonPostStartInvalid, element(field+".post_start_on_primary", i),
				"%s is not a command; remove the entry or write a shell command", quote(command))
		}
		if len(command) > maxWord {
			return refuse(ReasonPostStartInvalid, element(field+".post_start_on_primary", i),
				"the command has %d bytes, and Linux starts nothing with more than %d in one word; move it into a script", len(command), maxWord)
		}
	}
	return nil
}

func validateHealthcheck(field string, check *agboxv1.HealthcheckConfig, required bool) error {
	if message := testMistake(check.Test, required); message != "" {
		return refuse(ReasonHealthcheckTestInvalid, field+".test", "%s", message)
	}
	if err := cmp.Or(
		validateDuration(field+".interval", check.Interval, shortestHealthcheck),
		validateDuration(field+".timeout", check.Timeout, shortestHealthcheck),
		validateDuration(field+".start_period", check.StartPeriod, shortestHealthcheck),
		validateDuration(field+".start_interval", check.StartInterval, shortestHealthcheck),
	); err != nil {
		return err
	}
	if check.Retries > math.MaxInt32 {
		return refuse(ReasonRetriesTooLarge, field+".retries", "%d retries are more than %d; use fewer", check.Retries, math.MaxInt32)
	}
	return nil
}

// testMistake says what is wrong with a healthcheck's test, "" when nothing is.
func testMistake(test []string, required bool) string {
	const forms = `write ["CMD", program, argument…] or ["CMD-SHELL", command]`
	if len(test) == 0 {
		return "the test is empty; " + forms
	}
	if slices.ContainsFunc(test, func(word string) bool { return strings.ContainsRune(word, 0) }) {
		return fmt.Sprintf("%s contains a NUL byte; remove it", quote(strings.Join(test, " ")))
	}
	switch test[0] {
	case "CMD", "CMD-SHELL":
		if len(test) == 1 || strings.TrimSpace(test[1]) == "" {
			return fmt.Sprintf("%s is followed by no command; %s", test[0], forms)
		}
		if test[0] == "CMD-SHELL" && len(test) > 2 {
			return fmt.Sprintf("CMD-SHELL takes one string and got %d; join them, or use CMD", len(test)-1)
		}
		return ""
	case "NONE":
		if required {
			return "NONE is for optional services, a required one must be seen to be ready; " + forms
		}
		if len(test) > 1 {
			return "NONE takes nothing after it; remove the rest"
		}
		return ""
	}
	return fmt.Sprintf("the first word %s is none of CMD, CMD-SHELL and NONE; %s", quote(test[0]), forms)
}

// ValidateDuration refuses a duration of a request that is negative or none at all. Unset is fine.
func ValidateDuration(field string, d *durationpb.Duration) error {
	return validateDuration(field, d, 0)
}

// validateDuration refuses what is negative, or neither 0 nor at least shortest. Unset is fine.
func validateDuration(field string, d *durationpb.Duration, shortest time.Duration) error {
	if d == nil {
		return nil
	}
	if d.Seconds < 0 || d.Nanos < 0 {
		return refuse(ReasonDurationNegative, field, "%s is negative; use 0 or more", d.AsDuration())
	}
	if err := d.CheckValid(); err != nil {
		return refuse(ReasonDurationInvalid, field, "%d s and %d ns are no valid duration; keep ns below 1e9 and the whole below 10,000 years", d.Seconds, d.Nanos)
	}
	if v := d.AsDuration(); v != 0 && v < shortest {
		return refuse(ReasonDurationTooShort, field, "%s is shorter than the engine can wait; use 0 for its default, or at least %s", v, shortest)
	}
	return nil
}
