//! A Go program makes its system calls itself. `wirepath` says so before it starts it, and the
//! program runs on the kernel as if nothing stood in front of it. Needs a Go compiler, for `make
//! soak`.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use wirepath_tests::live::preload::{echo, library, segments_received, text, until_it_listens, wire};
use wirepath_tests::live::programs::is_echoed;
use wirepath_tests::live::{NEAR, Program, THEIRS, Wire, has_program, wait_until};

/// Asks an echo at its argument by twenty connections, and is one itself.
const ECHO: &str = r#"
package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
)

func ask(peer string, number byte) {
	connection, err := net.Dial("tcp", peer+":7000")
	if err != nil {
		panic(err)
	}
	sent := bytes.Repeat([]byte{number}, 100_000)
	go connection.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(connection, got); err != nil || !bytes.Equal(sent, got) {
		panic("other bytes")
	}
	connection.Close()
}

func main() {
	listener, err := net.Listen("tcp", ":7100")
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	for number := byte(0); number < 20; number++ {
		all.Add(1)
		go func(number byte) { defer all.Done(); ask(os.Args[1], number) }(number)
	}
	all.Wait()
	os.WriteFile(os.Args[2], []byte("asked all"), 0o644)
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() { defer connection.Close(); io.Copy(connection, connection) }()
	}
}
"#;

const WIREPATH: &str = env!("CARGO_BIN_EXE_wirepath");

/// The program; with cgo it is linked dynamically, so that the loader loads a library that
/// `LD_PRELOAD` names.
fn build(folder: &Path, with_cgo: bool) -> String {
    let (source, program) = (folder.join("echo.go"), folder.join("echo"));
    fs::write(&source, ECHO).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program);
    if with_cgo {
        go.args(["-tags", "netcgo", "-ldflags", "-linkmode=external"]);
    }
    go.arg(&source).env("CGO_ENABLED", if with_cgo { "1" } else { "0" });
    let built = go.env("GOCACHE", folder.join("cache")).env("GOFLAGS", "-mod=mod").output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    program.to_str().unwrap().to_owned()
}

/// Once it has asked, it answers; all by the kernel.
fn is_unharmed(wire: &Wire, asked: &Path) {
    wait_until("it has asked all", || asked.exists());
    until_it_listens(wire, 7_100);
    let before = segments_received(&wire.near);
    is_echoed(wire, 7_100, 20);
    assert!(segments_received(&wire.near) > before, "the kernel serves it");
}

#[test]
#[ignore = "a Go compiler is large; make soak runs it"]
fn go_program_runs_unharmed_and_is_reported_as_not_seen() {
    let test = "go_program_runs_unharmed_and_is_reported_as_not_seen";
    if !has_program(test, "go") {
        return;
    }
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let folder = tempfile::tempdir().unwrap();
    let (program, peer, asked) = (build(folder.path(), false), THEIRS.to_string(), folder.path().join("asked"));
    let named = "echo is a Go program, which makes its system calls without libc: no library sees its sockets";
    let wirepath = |arguments: &[&str]| {
        let mut command = Command::new(WIREPATH);
        command.args(arguments).env("WIREPATH_PRELOAD", library()).stdin(Stdio::null());
        text(&wire.near.run(|| command.output()).unwrap())
    };
    let doctor = wirepath(&["doctor", &program]);
    assert!(doctor.contains(named), "{doctor}");
    let refused = wirepath(&["run", "--interface", NEAR, "--policy", "refuse", &program, &peer]);
    assert!(refused.contains(named) && !asked.exists(), "{refused}");
    let said = folder.path().join("said");
    let mut command = Command::new(WIREPATH);
    command.args(["run", "--interface", NEAR, &program, &peer]).arg(&asked).env("WIREPATH_PRELOAD", library());
    let mut go = wire.near.run(|| command.stderr(fs::File::create(&said).unwrap()).spawn()).unwrap();
    is_unharmed(&wire, &asked);
    go.kill().unwrap();
    go.wait().unwrap();
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.contains("the program runs on the kernel") && said.contains(named), "{said}");
}

#[test]
#[ignore = "a Go compiler is large; make soak runs it"]
fn go_program_runs_unharmed_where_the_library_is_loaded_all_the_same() {
    let test = "go_program_runs_unharmed_where_the_library_is_loaded_all_the_same";
    if !has_program(test, "go") || !has_program(test, "cc") {
        return;
    }
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let folder = tempfile::tempdir().unwrap();
    let (program, asked) = (build(folder.path(), true), folder.path().join("asked"));
    let go = wirepath_tests::live::preload::start(&wire, &program, &[&THEIRS.to_string(), asked.to_str().unwrap()]);
    is_unharmed(&wire, &asked);
    let maps = fs::read_to_string(format!("/proc/{}/maps", go.id())).unwrap();
    assert!(maps.contains("libwirepath_preload"), "the loader has loaded it");
    drop::<Program>(go);
}
