// Package hotkey measures what one key that asks for too much does to others, through
// each way of sending requests, and what becomes of the keys of a server that gets slow.
package hotkey
