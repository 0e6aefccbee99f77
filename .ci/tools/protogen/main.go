// Protogen generates Go code from the .proto files below a folder, with
// nothing installed but Go: it compiles the files itself and runs the two
// protoc plugins that this module pins.
//
//	go -C .ci/tools run ./protogen [-check] -I ../../proto
//
// It runs in the module that pins the plugins.
// With -check it writes nothing, lists the files that are out of date and exits 1.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	check := flag.Bool("check", false, "only say which files are out of date")
	dir := flag.String("I", ".", "folder of the .proto files; generated code goes beside them")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	req, err := compile(dir)
	if err != nil {
		return err
	}
	stale := 0
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		files, err := generate(plugin, req)
		if err != nil {
			return err
		}
		for _, f := range files {
			path := filepath.Join(dir, f.GetName())
			if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, []byte(f.GetContent())) {
				continue
			}
			stale++
			fmt.Println(path)
			if check {
				continue
			}
			if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	if check && stale > 0 {
		return errors.New("generated code is out of date: run go generate ./proto")
	}
	return nil
}

// compile makes what protoc would send to its plugins.
func compile(dir string) (*pluginpb.CodeGeneratorRequest, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".proto") {
			var rel string
			rel, err = filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := c.Compile(context.Background(), names...)
	if err != nil {
		return nil, err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		req.ProtoFile = append(req.ProtoFile, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range compiled {
		add(f)
	}
	return req, nil
}

func generate(plugin string, req *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", plugin, err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return nil, fmt.Errorf("%s: %w", plugin, err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%s: %s", plugin, resp.GetError())
	}
	return resp.File, nil
}
