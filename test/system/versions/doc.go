// Package versions runs parts of two versions together: each part as it was at an earlier
// commit among newer ones, and each newer part among older ones, as an upgrade one part at a
// time leaves them for a while.
package versions
