// Package deploy holds the files of deploy/ to the programs that read them: Helm renders the
// chart, Kubernetes' and the Prometheus operator's own types take what comes out, Compose's
// loader takes the compose file, systemd's analyser the units, and Prometheus' parser the
// queries of alerts, recording rules and dashboards. It is a module of its own for the sake
// of what it links; it links nothing of Slicer's.
//
//	go -C test/system/deploy test -count=1 -v .
//
// The files are outside of the module, so that without -count=1 a result may be an old one.
// With -update it writes what is made from the chart anew: deploy/kubernetes/slicer.yaml and
// the table of values in deploy/docs/DEPLOY.md.
package deploy
