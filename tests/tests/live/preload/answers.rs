//! Answers of a server that was told of several requests at once: their frames leave together,
//! counted in the system calls by which the queue sends.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::{Read, Write};
use std::net::TcpStream;

use wirepath::counters::Snapshot;
use wirepath_tests::live::preload::{call, compile, is_listening, start, wire};
use wirepath_tests::live::{Program, Wire, wait_until};

const PORT: u16 = 7_000;
/// The folder of the server's counters.
const COUNTERS: &str = "counters";

/// A server with its clients, each of which has sent a request.
struct Served {
    folder: tempfile::TempDir,
    _wire: Wire,
    _server: Program,
    clients: Vec<TcpStream>,
}

/// Starts a part of the server under the library, and asks once by each client.
fn ask(test: &str, clients: usize, part: &str, variable: &str) -> Option<Served> {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(test, "answers.c", folder.path())?;
    let wire = wire(test, &[])?;
    let place = folder.path().display().to_string();
    std::fs::create_dir(folder.path().join(COUNTERS)).unwrap();
    let (counters, count) = (format!("WIREPATH_SHM={place}/{COUNTERS}"), clients.to_string());
    let server = start(&wire, "env", &[&counters, variable, &program, &count, &place, part]);
    wait_until("the server listens", || is_listening(&wire.near, PORT));
    let mut clients: Vec<TcpStream> = (0..clients).map(|_| call(&wire.far, PORT).unwrap()).collect();
    wait_until("the server has all clients", || folder.path().join("requested").exists());
    clients.iter_mut().for_each(|client| client.write_all(b"request").unwrap());
    Some(Served { folder, _wire: wire, _server: server, clients })
}

impl Served {
    /// Has the server answer, and returns how many system calls sent all answers.
    fn calls_for_all_answers(&mut self) -> u64 {
        let before = self.wakeups();
        self.go_on();
        let mut answer = [0; 6];
        self.clients.iter_mut().for_each(|client| client.read_exact(&mut answer).unwrap());
        self.wakeups() - before
    }

    /// Has the server answer, and waits until as many system calls as there are clients were
    /// counted: the last one is when it is over, and its answer may be there before.
    fn answers_one_by_one(mut self) {
        let before = self.wakeups();
        self.calls_for_all_answers();
        wait_until("a system call for each answer", || self.wakeups() - before >= self.clients.len() as u64);
    }

    fn go_on(&self) {
        drop(std::fs::File::options().write(true).open(self.folder.path().join("requested")).unwrap());
    }

    /// System calls by which the server has sent.
    fn wakeups(&self) -> u64 {
        let found = Snapshot::list(&self.folder.path().join(COUNTERS)).unwrap().running;
        found.iter().filter_map(|process| process.count("worker0/tx/wakeups")).sum()
    }
}

const CLIENTS: usize = 16;

#[test]
fn answers_to_requests_that_came_together_leave_together() {
    let test = "answers_to_requests_that_came_together_leave_together";
    // The longest wait, so that a slow machine rings for the last answer alone.
    let Some(mut served) = ask(test, CLIENTS, "all", "WIREPATH_GATHER_US=1000000") else { return };
    let calls = served.calls_for_all_answers();
    assert!(calls < CLIENTS as u64 / 2, "{calls} system calls for {CLIENTS} answers");
}

#[test]
fn answers_leave_one_by_one_where_none_is_to_wait() {
    let test = "answers_leave_one_by_one_where_none_is_to_wait";
    let Some(served) = ask(test, CLIENTS, "all", "WIREPATH_GATHER_US=0") else { return };
    served.answers_one_by_one();
}

#[test]
fn answers_of_a_program_with_datagrams_leave_one_by_one() {
    let test = "answers_of_a_program_with_datagrams_leave_one_by_one";
    let Some(served) = ask(test, CLIENTS, "datagrams", "WIREPATH_GATHER_US=1000000") else { return };
    served.answers_one_by_one();
}

#[test]
fn answer_leaves_although_its_server_makes_no_further_call() {
    let test = "answer_leaves_although_its_server_makes_no_further_call";
    let Some(mut served) = ask(test, 2, "one", "WIREPATH_GATHER_US=1000000") else { return };
    served.go_on();
    let is_answered = |client: &mut TcpStream| {
        client.set_nonblocking(true).unwrap();
        client.read(&mut [0; 6]).is_ok_and(|count| count == 6)
    };
    wait_until("one of both has its answer", || served.clients.iter_mut().any(is_answered));
}
