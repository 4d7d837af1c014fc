// Command gen compiles the .proto files and writes their Go code beside them. It needs nothing but Go: the
// compiler is a library and the plugins are tools of this module, so versions are pinned in go.mod.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// tree is a folder with .proto files that are generated beside themselves.
type tree struct {
	// folder is below the module's.
	folder  string
	sources []string
	plugins []string
}

var trees = []tree{
	{"proto", []string{"agbox/v1/agbox.proto", "agbox/journal/v1/journal.proto"}, []string{"protoc-gen-go", "protoc-gen-go-grpc"}},
	{"gateway/envd/proto", []string{"process/process.proto", "filesystem/filesystem.proto"}, []string{"protoc-gen-go", "protoc-gen-connect-go"}},
}

func main() {
	out := flag.String("out", "..", "`directory` of the module that the generated trees are written below")
	in := flag.String("in", "..", "`directory` of the module that the .proto files are below")
	flag.Parse()
	for _, t := range trees {
		if err := t.generate(filepath.Join(*in, t.folder), filepath.Join(*out, t.folder)); err != nil {
			fmt.Fprintln(os.Stderr, "proto/gen:", err)
			os.Exit(1)
		}
	}
}

func (t tree) generate(in, out string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{in}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), t.sources...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: t.sources,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(files),
	}
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	for _, plugin := range t.plugins {
		if err := runPlugin(plugin, input, out); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// withImports lists the descriptors that a plugin needs, each after what it imports.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var list []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var visit func(protoreflect.FileDescriptor)
	visit = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			visit(f.Imports().Get(i).FileDescriptor)
		}
		list = append(list, protodesc.ToFileDescriptorProto(f))
	}
	for _, file := range files {
		visit(file)
	}
	return list
}

func runPlugin(name string, input []byte, out string) error {
	cmd := exec.Command("go", "tool", name)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		path := filepath.Join(out, filepath.FromSlash(f.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
