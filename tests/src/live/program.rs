//! A program that is not ours and runs beside a test, in a namespace.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::netns::Namespace;

/// A program that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts it in `namespace`.
    pub fn start(namespace: &Namespace, program: &str, arguments: &[&str]) -> Self {
        // `ip netns exec` becomes the program: the child is the program itself.
        let child = Command::new("ip")
            .args(["netns", "exec", namespace.name(), program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.expect("ip (iproute2) is there, it made the namespace"))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it blocks in recvfrom(2): then it has finished its preparations and counts received
    /// frames.
    pub fn receives(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.0.id())).unwrap_or_default();
        call.split(' ').next() == Some(&libc::SYS_recvfrom.to_string())
    }

    /// Sends it an interrupt, as Ctrl-C does, and returns its output.
    pub fn interrupt(self) -> String {
        let asked = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()), "a child of ours can be signaled");
        self.finish()
    }

    /// Waits for its end, and returns its output, which is short enough for the pipes.
    pub fn finish(mut self) -> String {
        let mut said = String::new();
        for pipe in [
            self.0.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
            self.0.stderr.take().map(|pipe| Box::new(pipe) as _),
        ] {
            let mut bytes = Vec::new();
            // A pipe that cannot be read has no output.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            said.push_str(&String::from_utf8_lossy(&bytes));
        }
        let _ = self.0.wait();
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
