// Package overload tries what happens when there is too much to do, with real servers and
// clients.
package overload
