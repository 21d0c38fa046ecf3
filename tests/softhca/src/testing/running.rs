//! Programs under `softhca run` that are watched while they run.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A program that runs.
pub struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// The output of a program and how it ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` where it took too long and was killed.
    pub code: Option<i32>,
    /// Its output, both streams in order of arrival.
    pub said: String,
}

impl Running {
    /// Starts a command line, with words separated by single spaces, under `softhca run OPTIONS`.
    /// Its output is read line by line.
    ///
    /// # Panics
    /// There is no software ConnectX, or no such program.
    pub fn start(options: &str, command_line: &str) -> Self {
        let mut command = super::command(&options.split(' ').collect::<Vec<_>>()).unwrap();
        if Path::new("/usr/bin/stdbuf").exists() {
            command.args(["stdbuf", "-oL"]);
        }
        command.args(command_line.split(' '));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::default();
        let readers = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&said)),
            collect(child.stderr.take().unwrap(), Arc::clone(&said)),
        ];
        Self { child, said, readers }
    }

    /// Waits until it has said something: `false` where it ended without, or takes too long.
    pub fn says(&mut self, text: &str, patience: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < patience {
            let is_over = self.child.try_wait().unwrap().is_some();
            if self.said.lock().unwrap().contains(text) {
                return true;
            }
            if is_over {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Whether it has not ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its output so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Asks it to end, like ^C in a terminal.
    pub fn interrupt(&self) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
    }

    /// Waits for its end, and ends it where it takes too long.
    pub fn end(mut self, patience: Duration) -> Ended {
        let begin = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if begin.elapsed() > patience {
                // The command dies with the program that started it.
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                break None;
            }
            thread::sleep(Duration::from_millis(10));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let said = self.said.lock().unwrap().clone();
        Ended { code, said }
    }
}

/// A failed test leaves no polling process behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
    })
}
