package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/lease"
)

// ErrVersion is matched when a member is too old.
var ErrVersion = errors.New("etcd is too old for consistent mode")

// least is the first release in which a deposed leader renews no lease.
var least = [3]int{3, 5, 13}

// checkVersions asks every member that it has not heard of yet.
func (s *Store) checkVersions(outer context.Context) error {
	ctx, cancel := context.WithTimeout(outer, 5*time.Second)
	defer cancel()
	members, err := s.client.MemberList(ctx)
	if err != nil {
		return explain(outer, err)
	}
	var silent error
	known := 0
	for _, m := range members.Members {
		s.mu.Lock()
		ok := s.checked[m.ID]
		s.mu.Unlock()
		if ok {
			known++
			continue
		}
		version, err := s.version(ctx, m.ClientURLs)
		if err != nil {
			silent = fmt.Errorf("member %s does not tell its version: %w", m.Name, err)
			s.log.Warn("etcd member not checked", "member", m.Name, "error", err)
			continue
		}
		if err := checkVersion(version); err != nil {
			return fmt.Errorf("member %s: %w", m.Name, err)
		}
		known++
		s.mu.Lock()
		s.checked[m.ID] = true
		s.mu.Unlock()
	}
	if known == 0 {
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, silent)
	}
	return nil
}

func (s *Store) version(ctx context.Context, urls []string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = errors.New("it has no client address")
	for _, url := range urls {
		resp, statusErr := s.client.Status(ctx, url)
		if statusErr == nil {
			return resp.Version, nil
		}
		err = statusErr
	}
	return "", err
}

// checkVersion reports whether a member of this version may be part of it.
func checkVersion(version string) error {
	refuse := fmt.Errorf("%w: version %.40q, needed is 3.5.13 or later on every member", ErrVersion, version)
	core, _, _ := strings.Cut(version, "-")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return refuse
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < least[i] {
			return refuse
		}
		if n > least[i] {
			return nil
		}
	}
	return nil
}
