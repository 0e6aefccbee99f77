package ctl

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/assignment/store/etcdstore"
	"github.com/slicer-project/slicer/assignment/store/maintenance"
	"github.com/slicer-project/slicer/assignment/store/pebblestore"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/stores"
)

func (a *app) storeCommand() *cobra.Command {
	o := &storeOp{app: a}
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check, print, back up, restore and repair a store",
		Long: `Goes to the store itself, as assigners do: no server is asked. In etcd that can be
done while Slicer runs, apart from restore. In Pebble the process whose store it is
has to be stopped first, since it has the directory locked.`,
	}
	cmd.PersistentFlags().StringVar(&o.url, "store", "", "`URL` of the store: "+stores.Usage+", or pebble:///DIR")
	cmd.AddCommand(o.checkCommand(), o.dumpCommand(), o.backupCommand(), o.restoreCommand(), o.repairCommand())
	return cmd
}

// storeOp is what the commands about a store share.
type storeOp struct {
	app *app
	url string
}

// medium opens the store's records.
func (o *storeOp) medium(ctx context.Context, access pebblestore.Access) (maintenance.Medium, error) {
	if o.url == "" {
		return nil, run.Usagef("--store is missing: want %s, or pebble:///DIR", stores.Usage)
	}
	if o.app.timeout < 100*time.Millisecond || o.app.timeout > 10*time.Minute {
		return nil, run.Usagef("--timeout: %s is not allowed: want 100ms to 10m", o.app.timeout)
	}
	u, tls, err := stores.ParseURL(o.url)
	if err != nil {
		return nil, err
	}
	if u.Scheme == store.SchemeEtcd {
		return etcdstore.OpenMedium(etcdstore.Config{Endpoints: u.Endpoints, Prefix: u.Prefix, TLS: tls, RequestTimeout: o.app.timeout})
	}
	m, err := pebblestore.OpenMedium(ctx, u.Dir, pebblestore.Config{Timeout: o.app.timeout}, access)
	if errors.Is(err, syscall.EAGAIN) {
		return nil, fmt.Errorf("%w: stop the process whose store this is, such as slicer serve", err)
	}
	if err != nil {
		return nil, err // not a nil *pebblestore.Medium
	}
	return m, nil
}

// storeError gives an error of the store its exit code.
func storeError(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return &codedError{err.Error(), exitUnreachable}
	}
	return err
}

// on opens the store, runs f on all that it holds, and closes it.
func (o *storeOp) on(cmd *cobra.Command, access pebblestore.Access, f func(m maintenance.Medium, s *maintenance.Snapshot) error) error {
	ctx := cmd.Context()
	m, err := o.medium(ctx, access)
	if err != nil {
		return storeError(err)
	}
	s, err := m.Snapshot(ctx, progress(cmd.ErrOrStderr()))
	if err == nil {
		err = f(m, s)
	}
	return storeError(errors.Join(err, m.Close()))
}

// progress tells on standard error how far a long reading has come, every few seconds.
func progress(w io.Writer) func(records int) {
	next := time.Now().Add(progressEvery)
	return func(n int) {
		if now := time.Now(); now.After(next) {
			fmt.Fprintf(w, "slicerctl: %d records so far\n", n)
			next = now.Add(progressEvery)
		}
	}
}

const progressEvery = 3 * time.Second

// agree names what is to be changed, and asks on a terminal unless yes is set.
func agree(cmd *cobra.Command, yes bool, where, question string) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !yes && (!ok || !term.IsTerminal(int(in.Fd()))) {
		return run.Usagef("%s: --yes is needed where there is no terminal to ask at", cmd.CommandPath())
	}
	tell(cmd.ErrOrStderr(), where)
	if yes {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Type yes: ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	if answer != "yes\n" {
		return &codedError{"nothing was changed", run.ExitFailed}
	}
	return nil
}

// random is never 0.
func random() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}
