package clerkhttp

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// What proxies go by is package front's.
type (
	Rules    = front.Rules
	Rule     = front.Rule
	Upstream = front.Upstream
	Missing  = front.Missing
	Limit    = front.Limit
)

const (
	HTTP, HTTPS, H2C = front.HTTP, front.HTTPS, front.H2C
	// AnyTask and Refuse say what becomes of a request without a key: it goes to a task of
	// the clerk's subset, or it is an error that matches ErrNoKey.
	AnyTask, Refuse = front.AnyTask, front.Refuse
)

// What errors of RoundTrip may match, besides clerk.Refused and the network's.
var (
	ErrNoKey  = errors.New("the request has no key")
	ErrNoTask = errors.New("the job has no assignment, or no task that could be asked")
	ErrClosed = front.ErrClosed
)

const (
	defaultPatience = 10 * time.Second
	maxPatience     = time.Hour
	dialTimeout     = 2 * time.Second
	// idleWarm and idleOnDemand are how long connections stay open without a request,
	// to tasks in the subset and to others.
	idleWarm     = 5 * time.Minute
	idleOnDemand = 10 * time.Second
	maxIdle      = 256 // connections to a task
)

// Config says how a Transport sends requests.
type Config struct {
	// Clerk looks the keys up. It is the caller's, to close after the Transport.
	Clerk *clerk.Clerk
	// Key finds the key of a request that clerk.WithKey has given none, such as the
	// method Find of an httpkey.Finder; nil finds none.
	Key func(*http.Request) (key string, ok bool)
	// Missing is for requests without a key.
	Missing Missing
	// Policy chooses among the owners of a key, and for requests without one among
	// the tasks of the subset: policy.WeightedLeastLoaded, which is policy.LeastLoaded here, as
	// answers do not say how full tasks are, or policy.RoundRobin.
	Policy policy.Kind
	// Patience is how long a request may wait for the first assignment, or in
	// consistent mode for its owner, if its context does not end before: up to 1 h,
	// default 10 s.
	Patience time.Duration
	// ResponseTimeout is how long a task may take to begin its answer once it has been
	// sent the request; 0 is any. Then an idempotent request goes to another task, in
	// affinity mode and as far as clerk.MayRetry allows, and others fail. An idempotent
	// one that may not go on is waited for up to four times as long.
	ResponseTimeout time.Duration
	// Base is what the transports of all tasks are cloned from; nil is one like
	// http.DefaultTransport without proxies, with a dial timeout of 2 s, and with up
	// to 256 idle connections a task, for 5 min.
	Base *http.Transport
	// TLS, if not nil, returns the config of a connection in TLS that is about to be made,
	// such as certs.Source.ClientConfig, whose files may change meanwhile: it takes the
	// place of Base.TLSClientConfig and Base.DialTLSContext. Where the config names no
	// server, the task's address is what its certificate has to be for; where it names no
	// protocols, those of Base are taken.
	TLS func() *tls.Config
	// Registerer takes the metrics; nil is none. Transports may share one.
	Registerer prometheus.Registerer
}

func (c *Config) validate() error {
	refuse := func(field string, value any, allowed string) error {
		return &assignment.FieldError{Field: field, Value: value, Allowed: allowed}
	}
	switch {
	case c.Clerk == nil:
		return refuse("clerk", "none", "a clerk")
	case c.Missing > Refuse:
		return refuse("missing", int(c.Missing), "AnyTask or Refuse")
	case !c.Policy.Valid() || c.Policy == policy.Weighted:
		return refuse("policy", c.Policy.String(), "weighted_least_loaded, least_loaded or round_robin")
	case c.ResponseTimeout < 0:
		return refuse("response timeout", c.ResponseTimeout.String(), "0 or more")
	case c.Patience < 0 || c.Patience > maxPatience:
		return refuse("patience", c.Patience.String(), "0 to "+maxPatience.String())
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.Base == nil {
		c.Base = DefaultBase()
	}
	return nil
}

func DefaultBase() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   maxIdle,
		IdleConnTimeout:       idleWarm,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}
