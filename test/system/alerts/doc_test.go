// Package alerts breaks each thing that an alert of deploy/alerts.yaml is for, in real
// processes, and evaluates the rules as they stand there by Prometheus's own engine on what
// the processes' /metrics say. It is a module of its own for the sake of that engine.
//
//	go -C test/system/alerts test -v -timeout 15m .
//
// prints, for each alert, what was broken, after how long the expression was true and the
// alert fired, and after how long it was quiet again.
package alerts
