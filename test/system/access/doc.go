// Package access holds tests of who may do what, against real programs with certificates and
// a policy: each RPC of every service as each kind of identity, what strangers with a valid
// certificate try, and a control plane that gets its policy while it runs.
package access
