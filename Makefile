VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)
export GOFLAGS += -buildvcs=false

.PHONY: build engine demo test test-long lint proto bench bench-page bench-check chaos attack clean help

build: ## bin/agboxd and bin/agbox
	CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags '-s -w' -o cmd/agboxd/embedded/agbox-init ./cmd/agbox-init
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/agboxd ./cmd/agbox

engine: ## make sure that a Docker engine answers: the reachable one, else Debian's docker.io
	.ci/engine

demo: engine build ## a sandbox from create to delete, with real work in it
	.ci/demo

test: build ## the tests that every change must pass, against real Docker
	.ci/test

test-long: build ## the tests that take long
	.ci/test long

lint: ## gofmt, vet, staticcheck
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not gofmt-clean:"; echo "$$files"; exit 1; fi
	@.ci/long >/dev/null
	@! grep -rnE '\b(t|b|tb)\.Skip(f|Now)?\(' --include='*.go' . | grep -v '/skiplog/' || { echo 'lint: skip by skiplog.Skip, which tells of it'; exit 1; }
	go vet ./...
	go vet -tags long ./...
	go tool staticcheck ./...
	go tool staticcheck -tags long ./...

proto: ## generate the Go code of the wire contract
	cd proto && go run ./gen

bench: build engine ## measure agboxd beside plain Docker; BENCH='-run exec' for some rows, BENCH=-tti for the first echo
	go run ./cmd/agbox-bench -version $(VERSION) $(BENCH)

bench-page: build engine ## measure all, and write it into docs/performance.md, with its picture and the ratios that bench-check goes by
	go run ./cmd/agbox-bench -version $(VERSION) -page docs/performance.md -svg docs/performance.svg -keep docs/performance.json $(BENCH)

bench-check: build engine ## fail when a ratio is worse by a quarter than the kept one
	go run ./cmd/agbox-bench -version $(VERSION) -check docs/performance.json $(BENCH)

chaos: build engine ## kill the daemon again and again and count what is lost; CHAOS='-rounds 50 -seed 7' for less
	go run ./cmd/agbox-chaos $(CHAOS)

attack: build engine ## play every known attack for two minutes beside sandboxes at work; ATTACK='-for 20s' for less
	go run ./test/attack $(ATTACK)

clean: ## remove what was built
	rm -rf bin cmd/agboxd/embedded/agbox-init

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10
