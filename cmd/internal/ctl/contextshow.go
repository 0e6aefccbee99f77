package ctl

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// contextView is a context of the config file. Files have their whole paths.
type contextView struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Cert   string `json:"tls_cert,omitempty"`
	Key    string `json:"tls_key,omitempty"`
	CA     string `json:"tls_ca,omitempty"`
	// Current is the one that the file says, Used the one that commands use here.
	Current bool `json:"current"`
	Used    bool `json:"used"`
}

func (o *contextOp) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the contexts",
		Long: `Lists the contexts of the config file. * is at the one that commands use here: that of
--context, else of ` + ContextEnv + `, else the current one.`,
		Args:              run.Args(),
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, path, err := o.load()
			if err != nil {
				return err
			}
			_, t, err := o.chosen()
			if err != nil {
				return err
			}
			views := []contextView{}
			for _, name := range cfg.Names() {
				s := settings(cfg.Contexts[name], filepath.Dir(path))
				views = append(views, contextView{name, s[serverFlag], s[certFlag], s[keyFlag], s[caFlag], name == cfg.Current, name == t.context.Value})
			}
			if o.app.json {
				return printJSON(cmd.OutOrStdout(), views)
			}
			table := newTable("USED", "CONTEXT", "SERVER", "CERTIFICATE", "AUTHORITIES")
			for _, v := range views {
				mark := ""
				if v.Used {
					mark = "*"
				}
				table.row(mark, v.Name, v.Server, or(v.Cert, "-"), or(v.CA, "-"))
			}
			table.print(cmd.OutOrStdout())
			if t.context.From == ContextEnv && t.context.Value != cfg.Current {
				tell(cmd.ErrOrStderr(), fmt.Sprintf("%s counts before the current context, which is %s", ContextEnv, or(cfg.Current, "none")))
			}
			return nil
		},
	}
}

// targetView is where commands go, and why.
type targetView struct {
	Config  string  `json:"config"` // empty if there is none
	Context setting `json:"context"`
	Server  setting `json:"server"`
	Cert    setting `json:"tls_cert"`
	Key     setting `json:"tls_key"`
	CA      setting `json:"tls_ca"`
}

func (o *contextOp) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show where commands go, and what says so",
		Long: `Shows the config file, the context, and the server, certificate, key and authorities that
commands use here, each with what says so: a flag, a variable of the environment, the context,
or the default. Asks no server.`,
		Example: `  slicerctl context show
  slicerctl --context prod context show --json | jq -r .server.value`,
		Args:              run.Args(),
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := o.target()
			if err != nil {
				return err
			}
			if o.app.json {
				return printJSON(cmd.OutOrStdout(), targetView{t.config, t.context, t.server, t.cert, t.key, t.ca})
			}
			table := newTable("SETTING", "VALUE", "FROM")
			table.row("config file", or(t.config, "-"), "")
			for _, r := range []struct {
				name string
				setting
			}{{"context", t.context}, {"server", t.server}, {"certificate", t.cert}, {"key", t.key}, {"authorities", t.ca}} {
				table.row(r.name, or(r.Value, "-"), r.From)
			}
			table.print(cmd.OutOrStdout())
			return nil
		},
	}
}
