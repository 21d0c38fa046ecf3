//! The server, and what it is told of who connects.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

/// Bytes of a password or a token at most.
const SECRET_LEN_MAX: u64 = 4_096;

/// A server of NATS, and how to log in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    /// `HOST:PORT`.
    pub address: String,
    /// By default none.
    pub login: Login,
}

/// What a server asks of who connects. It goes over the network as it is: the protocol has TLS for
/// that, which is not built here, so a network that others hear needs a tunnel.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// Nothing.
    #[default]
    None,
    /// A user and a password.
    User {
        /// The user.
        name: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
}

/// Without its secrets.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::User { name, .. } => write!(f, "User({name:?})"),
            Self::Token(_) => f.write_str("Token"),
        }
    }
}

impl<T: Into<String>> From<T> for NatsServer {
    fn from(address: T) -> Self {
        Self { address: address.into(), login: Login::None }
    }
}

impl Login {
    /// The options of CONNECT.
    pub(crate) fn options(&self) -> Value {
        let mut options = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "lang": "wirepath",
            "name": "market-gateway",
        });
        match self {
            Self::None => (),
            Self::User { name, password } => {
                options["user"] = json!(name);
                options["pass"] = json!(password);
            }
            Self::Token(token) => options["auth_token"] = json!(token),
        }
        options
    }
}

/// Reads a password or a token: the first line of a file that nobody but its owner can read.
///
/// # Errors
///
/// The file cannot be read, others can read it, or there is nothing in it.
pub fn read_secret(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!("others can read it (mode {:o}): chmod 600", mode & 0o777)));
    }
    let mut text = String::new();
    file.take(SECRET_LEN_MAX).read_to_string(&mut text)?;
    match text.lines().next() {
        Some(secret) if !secret.is_empty() => Ok(secret.to_owned()),
        _ => Err(io::Error::other("its first line is empty")),
    }
}
