// Package hotkey measures what one key that asks for too much does to others, through
// each way of sending requests.
package hotkey
