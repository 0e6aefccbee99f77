// Package webapp shows what it takes to shard an HTTP service, and tests that it
// works.
//
// server counts the visits of users, each in the memory of the task that owns the user.
// client asks the owners itself; other clients, such as a browser, ask slicerproxy with
// the rules in rules.yaml.
package webapp
