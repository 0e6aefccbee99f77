// Package search is an example of a service that degrades: when there is more to do than its
// servers can, it first gives cheaper and worse answers, and only then none.
//
// Each tenant's documents are in the memory of the task that owns the tenant. A search looks
// at all of them as long as there is room, and at the newest alone when requests of its
// criticality are near to being refused (overload.Pressure). server is the program.
package search
