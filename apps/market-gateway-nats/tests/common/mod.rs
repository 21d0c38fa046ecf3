//! A real server, and a ring to publish.
#![allow(dead_code, reason = "each user needs its own part")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

mod ring;

pub(crate) use ring::{Ring, record};

/// A server that keeps its streams in a folder, over restarts.
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    child: Option<Child>,
    /// The only user and password, or the token alone, that it takes.
    secret: Option<(&'static str, &'static str)>,
    /// Bytes that its disk has, where that is not all of this machine's.
    disk: Option<u64>,
}

impl Server {
    /// `None`, and a word why, where there is no server here.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with_disk(test, None)
    }

    /// The same, with so many bytes for its streams.
    pub(crate) fn start_with_disk(test: &str, disk: Option<u64>) -> Option<Self> {
        let port = free_port();
        let mut server = Self { folder: tempfile::tempdir().unwrap(), port, child: None, secret: None, disk };
        if let Err(error) = server.restart() {
            println!("SKIPPED {test}: nats-server: {error}; install the package nats-server");
            return None;
        }
        Some(server)
    }

    /// The same, with a user and a password, or with a token for a user without a name.
    pub(crate) fn start_with_login(test: &str, user: &'static str, secret: &'static str) -> Option<Self> {
        let mut server = Self::start(test)?;
        server.kill();
        server.secret = Some((user, secret));
        server.restart().unwrap();
        Some(server)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn restart(&mut self) -> std::io::Result<()> {
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]).arg(self.folder.path());
        match self.secret {
            None => (),
            Some(("", token)) => _ = command.args(["--auth", token]),
            Some((user, password)) => _ = command.args(["--user", user, "--pass", password]),
        }
        if let Some(bytes) = self.disk {
            let config = self.folder.path().join("server.conf");
            std::fs::write(&config, format!("jetstream {{ max_file_store: {bytes} }}\n"))?;
            command.arg("-c").arg(config);
        }
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        Ok(())
    }

    /// By SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Forgets all streams, as a disk that is replaced does. Only while it is killed.
    pub(crate) fn replace_disk(&mut self) {
        self.folder = tempfile::tempdir().unwrap();
    }
}

/// Below the ports that the kernel gives to clients: one of those could be a client's by the time
/// the server is restarted.
fn free_port() -> u16 {
    let drawn = RandomState::new().build_hasher().finish();
    let mut ports = (0..10_000).map(|idx| 20_000 + ((drawn % 10_000 + idx) % 10_000) as u16);
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
