package front

import (
	"net/http"
)

// Keys finds keys by rules, for a server that has to know them as the proxy before it does.
// It is safe for concurrent use.
type Keys struct{ matchers []*Matcher }

// NewKeys takes those of the rules that are job's; nil if there are none. The error is that of
// Rules.Validate.
func NewKeys(rules Rules, job string) (*Keys, error) {
	if len(rules.List) == 0 {
		return nil, nil
	}
	list, err := rules.compile(nil)
	if err != nil {
		return nil, err
	}
	k := &Keys{}
	for _, m := range list {
		if m.Job == job {
			k.matchers = append(k.matchers, m)
		}
	}
	return k, nil
}

// Find is Matcher.Key of the first rule that fits the request; it is not ok where none does.
func (k *Keys) Find(r *http.Request) (key string, ok bool, err error) {
	for _, m := range k.matchers {
		if m.fits(r) {
			return m.Key(r)
		}
	}
	return "", false, nil
}
