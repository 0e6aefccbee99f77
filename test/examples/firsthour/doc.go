// Package firsthour runs deploy/docs/FIRST_HOUR.md line by line, in a network of its own, so
// that the ports that the page names are free.
package firsthour
