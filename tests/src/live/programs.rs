//! Shared by the tests of programs under the preload library: peers, files, and processes that end
//! with the test.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a panic here is the report

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::thread;

use super::preload::{run, text};
use super::{THEIRS, TIMEOUT, Wire};

/// Ends all processes of a test when dropped: those of a program, and those that it started.
#[derive(Debug)]
pub struct ProcessGuard<'a>(pub &'a Wire);

impl Drop for ProcessGuard<'_> {
    fn drop(&mut self) {
        self.0.near.end_processes();
        self.0.far.end_processes();
    }
}

/// Files of a test.
#[derive(Debug)]
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// An empty one.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, and names it.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Sends bytes by connections of the far kernel that are open at the same time, and has them back.
pub fn is_echoed(wire: &Wire, port: u16, connections: usize) {
    let mut sockets: Vec<TcpStream> = (0..connections).map(|_| call(wire, port)).collect();
    let bytes = |number: usize| format!("connection {number} ").repeat(500).into_bytes();
    for (number, socket) in sockets.iter_mut().enumerate() {
        socket.write_all(&bytes(number)).unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let expected = bytes(number);
        let mut echoed = vec![0; expected.len()];
        socket.read_exact(&mut echoed).unwrap_or_else(|error| panic!("connection {number}: {error}"));
        assert!(echoed == expected, "other bytes by connection {number}");
    }
}

/// A connection of the far kernel.
pub fn call(wire: &Wire, port: u16) -> TcpStream {
    super::preload::call(&wire.far, port).unwrap()
}

/// Pages of a kernel's server at the far end, for many requests of a connection.
pub fn serve_pages(wire: &Wire, port: u16, len: usize) {
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, port)).unwrap());
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(socket, len));
        }
    });
}

fn serve(socket: TcpStream, len: usize) -> std::io::Result<()> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    let (mut reader, mut writer) = (BufReader::new(socket.try_clone()?), socket);
    loop {
        let (mut line, mut stays) = (String::new(), true);
        while reader.read_line(&mut line)? > 2 {
            stays &= !line.contains("HTTP/1.0");
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        let page = "x".repeat(len);
        write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{page}")?;
        if !stays {
            return Ok(());
        }
    }
}

/// The body of a page that a server at the near end has.
pub fn fetch(wire: &Wire, port: u16) -> String {
    let mut socket = call(wire, port);
    socket.write_all(b"GET / HTTP/1.0\r\nHost: near\r\n\r\n").unwrap();
    let mut page = String::new();
    socket.read_to_string(&mut page).unwrap();
    page.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no page: {page:?}")).1.to_owned()
}

/// Runs a program that says `word` once it has done all.
pub fn runs(wire: &Wire, program: &str, arguments: &[&str], word: &str) -> Output {
    let output = run(wire, program, arguments);
    assert!(output.status.success() && text(&output).contains(word), "{program} {arguments:?}: {}", text(&output));
    output
}
