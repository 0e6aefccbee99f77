// Package plane is a whole control plane in one process: an assigner, a
// Distributor and a Backup Distributor on one store, each behind a gRPC server.
// "slicer serve" is one, and so is what "slicer demo" shows.
package plane

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/assigner"
	"github.com/slicer-project/slicer/assignment/access/enforce"
	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist"
	"github.com/slicer-project/slicer/cmd/internal/introspect"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/distributor"
	"github.com/slicer-project/slicer/lease/serve"
)

// Config says what a control plane is made of.
type Config struct {
	ID, Zone string
	// Store stays the caller's, which closes it after the plane.
	Store store.Backend
	// Leases are those of jobs in consistent mode, which are refused without. They
	// are served to slicelets where the Distributor and the Backup Distributor are; the
	// plane closes them.
	Leases *serve.Store
	// LeaseTTL is the assigner's.
	LeaseTTL time.Duration
	// Distributor and Backup are where those serve; the plane takes them over.
	Distributor, Backup net.Listener
	// Assigner is where the assigner serves the Distributor: within the process
	// if it is nil, unseen from outside.
	Assigner net.Listener
	// Credentials of the Distributor's and the Backup Distributor's servers.
	Credentials credentials.TransportCredentials
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
	// AutoshardingEndpoint is the Distributor's.
	AutoshardingEndpoint string
	// Rights are those of the peers of Distributor and Backup; nil lets all.
	Rights *enforce.Rights
	// Ready is the health that the servers tell, nil for that of the parts alone.
	Ready func() error
}

// Plane is a control plane that serves.
type Plane struct {
	assigner    *assigner.Assigner
	distributor *distributor.Distributor
	backup      *backupdist.Server
	leases      *serve.Store // nil if there are none
	tools       *introspect.Services

	// In the order in which they stop: subscribers first.
	servers [3]*run.Server
}

// Start starts a control plane. It does not wait until that is ready.
func Start(cfg Config) (*Plane, error) {
	p := &Plane{leases: cfg.Leases}
	// Within the process the assigner's address is not dialed: the Distributor's dialer
	// leads straight there. It says where the process is.
	lis, address, dial := cfg.Assigner, cfg.Distributor.Addr().String(), []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if lis == nil {
		here := newPipe()
		lis, dial = here, append(dial, here.dialer())
	} else {
		address = lis.Addr().String()
	}
	if err := p.open(cfg, address, dial); err != nil {
		for _, l := range []net.Listener{cfg.Distributor, cfg.Backup, lis} {
			l.Close()
		}
		return nil, errors.Join(err, p.closeParts())
	}
	if cfg.Ready == nil {
		cfg.Ready = p.Ready
	}
	p.tools = introspect.New(introspect.Config{Ready: cfg.Ready, Rights: cfg.Rights})
	p.servers = [3]*run.Server{
		run.Serve(p.distributor.Admit(cfg.Distributor), cfg.Credentials, p.tools.After(p.register), distributor.ServerOptions()...),
		run.Serve(p.backup.Admit(cfg.Backup), cfg.Credentials, p.tools.After(p.registerBackup), backupdist.ServerOptions()...),
		run.Serve(lis, insecure.NewCredentials(), p.assigner.Register, assigner.ServerOptions()...),
	}
	return p, nil
}

// register has subscribers find everything at one address.
func (p *Plane) register(r grpc.ServiceRegistrar) {
	p.distributor.Register(r)
	if p.leases != nil {
		p.leases.Register(r)
	}
}

// registerBackup serves leases once more where few subscribers connect and none waits for
// a change to be brought to others: a lease does not wait behind all of those that connect
// after a restart.
func (p *Plane) registerBackup(r grpc.ServiceRegistrar) {
	p.backup.Register(r)
	if p.leases != nil {
		p.leases.Register(r)
	}
}

func (p *Plane) open(cfg Config, address string, dial []grpc.DialOption) (err error) {
	named := assigner.NamedStore{Backend: cfg.Store}
	if cfg.Leases != nil {
		named.Leases = cfg.Leases
	}
	// None but this process reaches the assigner, unless it has a listener of its own.
	within := cfg.Rights
	if cfg.Assigner == nil {
		within = cfg.Rights.Within()
	}
	p.assigner, err = assigner.New(assigner.Config{
		ID: cfg.ID, Zone: cfg.Zone, Address: address, Stores: []assigner.NamedStore{named}, LeaseTTL: cfg.LeaseTTL, Rights: within,
		Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return err
	}
	p.distributor, err = distributor.New(distributor.Config{
		ID: cfg.ID, Zone: cfg.Zone, Assigners: []string{address}, DialOptions: dial,
		Logger: cfg.Logger, Registerer: cfg.Registerer, AutoshardingEndpoint: cfg.AutoshardingEndpoint, Rights: cfg.Rights,
	})
	if err != nil {
		return err
	}
	p.backup, err = backupdist.New(backupdist.Config{Store: cfg.Store, Rights: cfg.Rights, Logger: cfg.Logger, Registerer: cfg.Registerer})
	return err
}

// RegisterAdmin adds the assigner's services to a server, AdminService among them.
func (p *Plane) RegisterAdmin(r grpc.ServiceRegistrar) { p.assigner.Register(r) }

// Ready is nil when all parts are.
func (p *Plane) Ready() error {
	return errors.Join(p.assigner.Ready(), p.distributor.Ready(), p.backup.Ready())
}

// Endings come when some server has ended by itself.
func (p *Plane) Endings() []run.Ending {
	return []run.Ending{p.servers[0].Ending(), p.servers[1].Ending(), p.servers[2].Ending()}
}

// Close ends it in an orderly way.
func (p *Plane) Close() error {
	p.tools.Close()
	return errors.Join(
		p.servers[0].Stop(p.closeFront),
		p.servers[1].Stop(p.backup.Close),
		p.servers[2].Stop(p.assigner.Close),
	)
}

// closeFront ends what subscribers have open. The assigner gives its session back before
// the leases end: when no other process has one, the next start need not wait.
func (p *Plane) closeFront() error {
	err := p.distributor.Close()
	if p.leases != nil {
		err = errors.Join(err, p.assigner.Close(), p.leases.Close())
	}
	return err
}

// closeParts is for a start that fails half way.
func (p *Plane) closeParts() error {
	var errs []error
	if p.backup != nil {
		errs = append(errs, p.backup.Close())
	}
	if p.distributor != nil {
		errs = append(errs, p.distributor.Close())
	}
	if p.assigner != nil {
		errs = append(errs, p.assigner.Close())
	}
	if p.leases != nil {
		errs = append(errs, p.leases.Close())
	}
	return errors.Join(errs...)
}
