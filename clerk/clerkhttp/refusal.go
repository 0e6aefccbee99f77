package clerkhttp

import (
	"net/http"
	"strconv"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
)

// refusal tells an answer by which a task of a consistent job says that it
// does not own the key. What it says is bounded, since it comes from the network.
func refusal(job string, resp *http.Response) (clerk.Refused, bool) {
	switch {
	case resp == nil:
		return clerk.Refused{}, false
	case resp.StatusCode == http.StatusOK:
		return grpcRefusal(job, resp)
	}
	task, g, ok := said(resp, http.StatusMisdirectedRequest, httpkey.HeaderRefused)
	return clerk.Refused{Job: job, Task: task, Generation: g}, ok
}

// LostOf tells an answer by which a task of a job in consistent mode says that it lost
// the key while the request ran (package slicelethttp), so that the request may have
// been carried out and its answer was held back.
func LostOf(resp *http.Response) (clerk.Lost, bool) { return loss("", resp) }

func loss(job string, resp *http.Response) (clerk.Lost, bool) {
	switch {
	case resp == nil:
		return clerk.Lost{}, false
	case resp.StatusCode == http.StatusOK:
		return grpcLoss(job, resp)
	}
	task, g, ok := said(resp, http.StatusConflict, httpkey.HeaderLost)
	return clerk.Lost{Job: job, Task: task, Generation: g}, ok
}

// said is what an answer of this code says in a header of a task, and which
// generation that knows.
func said(resp *http.Response, code int, header string) (task string, g assignment.Generation, ok bool) {
	task = resp.Header.Get(header)
	if resp.StatusCode != code || task == "" || len(task) > assignment.MaxNameLen {
		return "", 0, false
	}
	n, err := strconv.ParseInt(resp.Header.Get(httpkey.HeaderGeneration), 10, 64)
	if err != nil || n < 0 || n > int64(assignment.MaxGeneration) {
		n = 0
	}
	return task, assignment.Generation(n), true
}
