// Package page is the status page that assigner, Distributor and "slicer serve" show at
// --http: all jobs at a glance, and of one job its keyspace as a heat map, its tasks, what the
// last rounds decided, how far the newest generation has come, and what operators have
// ordered. It is read only.
//
// Everything on it comes from the AdminService that slicerctl asks: on an assigner and in
// "slicer serve" within the process, on a Distributor by way of the assigners. So page and
// slicerctl agree.
//
// A job that is looked at has one reader, however many viewers it has, and without viewers
// nothing is read. What was read lies in parts (feed.go), each a line of JSON with a version. A
// viewer is sent the parts that are newer than what it has, by server-sent events; one that is
// slow misses readings, and nothing is queued for it. Slices are sent in columns, their loads as
// a byte each.
//
// Where a policy is in force, a viewer needs a client certificate whose identity may read the
// job, or has to come from the machine itself (viewer.go).
//
// The page is HTML, CSS and JavaScript modules as they are in assets, embedded. All its URLs are
// relative, so that it works behind a path prefix.
package page
