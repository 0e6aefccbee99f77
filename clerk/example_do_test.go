package clerk_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
)

// A request that is sent again until a task serves it, for at most a second. It may be
// sent twice only if no task has taken it, which Do is told by the error.
func ExampleClerk_Do() {
	get := func(c *clerk.Clerk, user string) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var resp *http.Response
		err := c.Do(ctx, user, func(ctx context.Context, task assignment.Task) error {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://"+task.Address+"/profile?user="+user, nil)
			if err != nil {
				return err
			}
			clerkhttp.SetHeaders(req, user)
			resp, err = http.DefaultClient.Do(req)
			full, isFull := clerkhttp.OverloadedOf(resp)
			switch {
			case err != nil: // a GET can be sent twice, whatever became of it
				return clerk.Unreached{Err: err}
			case resp.StatusCode == http.StatusMisdirectedRequest: // in consistent mode: not the owner
				resp.Body.Close()
				return clerk.Refused{Job: c.Job(), Task: task.Name}
			case isFull: // it has no room
				resp.Body.Close()
				return full
			}
			return nil
		})
		return resp, err
	}
	_ = get

	err := fmt.Errorf("GET: %w", clerk.Refused{Job: "cache", Task: "cache-3", Generation: 7})
	var refused clerk.Refused
	fmt.Println(errors.As(err, &refused), err)
	// Output: true GET: task "cache-3" of job "cache" does not own the key, by generation 7
}
