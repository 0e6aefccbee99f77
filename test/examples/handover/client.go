package handover

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/slicer-project/slicer/clerk"
)

// Client reads and writes entries at the servers that have them.
type Client struct {
	Clerk *clerk.Clerk
	HTTP  http.Client
}

// Get returns an entry. It asks the owner, again and again until one has the key's
// range or ctx ends.
func (c *Client) Get(ctx context.Context, key string) (n uint64, ok bool, err error) {
	body, code, err := c.do(ctx, http.MethodGet, key, "")
	if err != nil || code == http.StatusNotFound {
		return 0, false, err
	}
	n, err = strconv.ParseUint(body, 10, 64)
	return n, err == nil, err
}

// Put writes an entry, unless a higher one is there. If the error is not nil, it may
// have been written or not.
func (c *Client) Put(ctx context.Context, key string, n uint64) error {
	_, _, err := c.do(ctx, http.MethodPut, key, "&n="+strconv.FormatUint(n, 10))
	return err
}

func (c *Client) do(ctx context.Context, method, key, more string) (body string, code int, err error) {
	why := fmt.Errorf("no task owns it")
	for {
		if owners := c.Clerk.Lookup(key); owners.Len() > 0 {
			body, code, err = c.ask(ctx, method, "http://"+owners.At(0).Address+"/entry?key="+url.QueryEscape(key)+more)
			switch {
			case err != nil:
				why = err // to send it again does no harm, even if it was served
			case code == http.StatusOK || code == http.StatusNotFound && method == http.MethodGet:
				return body, code, nil
			case code != http.StatusMisdirectedRequest:
				return "", 0, fmt.Errorf("%s of %q: %s", method, key, body)
			default:
				why = fmt.Errorf("task %s: %s", owners.At(0).Name, body)
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return "", 0, fmt.Errorf("%s of %q: %w: %w", method, key, context.Cause(ctx), why)
		}
	}
}

func (c *Client) ask(ctx context.Context, method, url string) (body string, code int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", 0, err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), resp.StatusCode, err
}
