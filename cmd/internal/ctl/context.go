package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/contexts"
	"github.com/slicer-project/slicer/cmd/internal/run"
)

func (a *app) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name control planes, and choose one of them",
		Long: `A context is a control plane with a name: where it is, and the certificate, key and
authorities to connect to it with. Contexts are kept in a YAML file, by default in
$XDG_CONFIG_HOME/slicer/config.yaml or ~/.config/slicer/config.yaml:

  current: staging
  contexts:
    staging:
      server: slicer.staging.example.com:4720
      tls_cert: staging/ada.crt # relative to the folder of this file
      tls_key: staging/ada.key
      tls_ca: staging/ca.crt

Each of server, authorities, and certificate with key is what a flag says, else the
environment (` + ServerEnv + `, ` + CAEnv + `, ` + CertEnv + ` with ` + KeyEnv + `), else the
context, else the default. The context is that of --context, else of ` + ContextEnv + `, else the
current one. With --context the environment's server and files do not count; with
--context '' no context does. slicerctl context show tells what comes from where, and each
command that changes something says first, on standard error, to which server it goes.`,
	}
	o := &contextOp{a, &a.locator}
	cmd.AddCommand(o.listCommand(), o.showCommand(), o.useCommand(), o.setCommand(), o.deleteCommand())
	return cmd
}

// contextOp is what the commands about contexts share.
type contextOp struct {
	app *app
	*locator
}

// complete offers the names of the config file's contexts.
func (l *locator) complete(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var fit []cobra.Completion
	if cfg, _, err := l.load(); err == nil {
		for _, n := range cfg.Names() {
			if strings.HasPrefix(n, prefix) {
				fit = append(fit, n)
			}
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// completeOne is for commands with the name of a context as their one argument.
func (o *contextOp) completeOne(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.complete(cmd, args, prefix)
}

// edited is what became of a context.
type edited struct {
	Context string `json:"context"`
	Result  string `json:"result"` // created, updated, unchanged, current or deleted
	Current string `json:"current,omitempty"`
	Config  string `json:"config"`
}

// edit changes the config file. change reports what became of the context, and whether the
// file is to be written.
func (o *contextOp) edit(cmd *cobra.Command, name string, change func(*contexts.Config, *edited) (bool, error)) error {
	path, _ := o.path()
	if path == "" {
		return errors.New("where the config file is to be is not known: HOME is not set, and neither are --config, " + ConfigEnv + " and XDG_CONFIG_HOME")
	}
	if o.app.timeout <= 0 {
		return run.Usagef("--timeout: %s is not allowed: want more than 0", o.app.timeout)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.app.timeout)
	defer cancel()
	v := &edited{Context: name, Config: path}
	err := contexts.Update(ctx, path, func(c *contexts.Config) (bool, error) {
		write, err := change(c, v)
		v.Current = c.Current
		return write, err
	})
	if err != nil {
		return err
	}
	if o.app.json {
		return printJSON(cmd.OutOrStdout(), v)
	}
	v.print(cmd.OutOrStdout())
	return nil
}

func (v *edited) print(w io.Writer) {
	switch {
	case v.Result == "current":
		fmt.Fprintf(w, "context %s is current in %s\n", v.Context, v.Config)
	case v.Result == "deleted" && v.Current == "":
		fmt.Fprintf(w, "context deleted from %s: %s; none is current\n", v.Config, v.Context)
	case v.Result == "deleted":
		fmt.Fprintf(w, "context deleted from %s: %s\n", v.Config, v.Context)
	case v.Current == v.Context:
		fmt.Fprintf(w, "context %s %s in %s; it is current\n", v.Context, v.Result, v.Config)
	default:
		fmt.Fprintf(w, "context %s %s in %s; to make it current: slicerctl context use %s\n", v.Context, v.Result, v.Config, v.Context)
	}
}

func unknownContext(name, path string, c *contexts.Config) error {
	if len(c.Contexts) == 0 {
		return notFoundf("there is no context %q, as there is none in %s: slicerctl context set makes one", name, path)
	}
	return notFoundf("there is no context %q in %s: want one of: %s", name, path, c.Known())
}

func (o *contextOp) useCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Long: `Makes a context the one that commands use, in all shells, unless --context or
` + ContextEnv + ` names another. Says so when the environment has something that counts before it.`,
		Example:           `  slicerctl context use staging`,
		Args:              run.Args("NAME"),
		ValidArgsFunction: o.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.edit(cmd, args[0], func(c *contexts.Config, v *edited) (bool, error) {
				v.Result = "current"
				was := c.Current
				if !c.Use(args[0]) {
					return false, unknownContext(args[0], v.Config, c)
				}
				return c.Current != was, nil
			})
			if err != nil {
				return err
			}
			for _, env := range []string{ContextEnv, ServerEnv, CertEnv, KeyEnv, CAEnv} {
				if os.Getenv(env) != "" {
					tell(cmd.ErrOrStderr(), env+" is set, and counts before the current context")
				}
			}
			return nil
		},
	}
}

func (o *contextOp) setCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME [--server HOST:PORT] [--tls-cert FILE --tls-key FILE] [--tls-ca FILE]",
		Short: "Make a context, or change one",
		Long: `Makes a context, which needs --server, or changes of one what is given; '' takes a file
away. Files need not be there yet. Those in the folder of the config file are noted relative
to it, so that the folder can be moved; others with their whole path. The environment does
not count here. Use of the context is another command's: slicerctl context use.

The config file is replaced whole, and is readable by you alone afterwards. Comments in it
stay, apart from those of a context that is deleted; indentation becomes two spaces and blank
lines go.`,
		Example: `  slicerctl context set dev --server localhost:4720
  slicerctl context set prod --server slicer.example.com:4720 --tls-cert ada.crt --tls-key ada.key --tls-ca ca.crt`,
		Args:              run.Args("NAME"),
		ValidArgsFunction: o.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, _ := o.path()
			given := make(map[string]string)
			for _, flag := range []string{serverFlag, certFlag, keyFlag, caFlag} {
				f := o.flags.Lookup(flag)
				if !f.Changed {
					continue
				}
				given[flag] = f.Value.String()
				if flag == serverFlag {
					if err := run.CheckDialable("--server", given[flag]); err != nil {
						return err
					}
				} else if given[flag] != "" {
					given[flag] = fromFolder(filepath.Dir(path), given[flag])
				}
			}
			if len(given) == 0 {
				return run.Usagef("%s: nothing is given to set: want --server, --tls-cert with --tls-key, or --tls-ca", cmd.CommandPath())
			}
			return o.edit(cmd, args[0], func(c *contexts.Config, v *edited) (bool, error) {
				was, there := c.Contexts[args[0]]
				x := was
				for flag, to := range map[string]*string{serverFlag: &x.Server, certFlag: &x.Cert, keyFlag: &x.Key, caFlag: &x.CA} {
					if value, ok := given[flag]; ok {
						*to = value
					}
				}
				switch {
				case !there && x.Server == "":
					return false, run.Usagef("--server: missing, a new context needs it")
				case !there:
					v.Result = "created"
				case x == was:
					v.Result = "unchanged"
					return false, nil
				default:
					v.Result = "updated"
				}
				if err := c.Set(args[0], x); err != nil {
					return false, &run.UsageError{Err: err}
				}
				return true, nil
			})
		},
	}
}

// fromFolder is the name of a file as the config file has it: relative to its folder if the
// file is in there.
func fromFolder(folder, name string) string {
	abs, err := filepath.Abs(name)
	if err != nil {
		return name
	}
	if rel, err := filepath.Rel(folder, abs); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return abs
}

func (o *contextOp) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a context",
		Long: `Deletes a context from the config file, with its comments. The control plane, and the files
that the context names, stay as they are. If it was the current one, none is.`,
		Args:              run.Args("NAME"),
		ValidArgsFunction: o.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.edit(cmd, args[0], func(c *contexts.Config, v *edited) (bool, error) {
				v.Result = "deleted"
				if !c.Delete(args[0]) {
					return false, unknownContext(args[0], v.Config, c)
				}
				return true, nil
			})
		},
	}
}
