//! The rules that decide which sockets leave the kernel: by program, traffic, address and port.
//!
//! A file of rules is TOML in our own form, or a libvma.conf; the content shows which of the two it
//! is. The rules are consulted when a call names an address: `bind`, `listen`, `connect`, the first
//! `sendto`. That costs one pass over the rules and no allocation.
//!
//! ```text
//!   rule       one rule: which traffic, which addresses, and what becomes of it
//!   query      what a call asks, and the answer
//!   pattern    names of programs with * and ?, as the shell matches them
//!   vma        libvma.conf: words, statements
//!   toml       our own file
//!   broker     the file of `wirepath broker`: who may have what of which interface
//!   error      one sentence with file, line, column and what was expected
//! ```
//!
//! ```
//! use sockets::rules::{Query, Role, Rules, Traffic};
//!
//! let rules = Rules::parse("trading.toml", r#"
//!     [[rules]]
//!     use = "os"                     # the admin's port stays the kernel's
//!     traffic = "tcp-server"
//!     local = "*:8080"
//! "#)?;
//! let local = "192.0.2.1:8080".parse()?;
//! let query = Query { program: "engine", application_id: None, traffic: Traffic::TcpServer, local, remote: None };
//! let decision = rules.role(&query);
//! assert_eq!((decision.role, decision.why), (Role::Os, "rule 1 of trading.toml"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod broker;
mod error;
mod pattern;
mod query;
mod rule;
mod set;
mod toml;
mod vma;

#[cfg(test)]
mod tests;

pub use broker::{Names, load_broker, parse_broker};
pub use error::RulesError;
pub use query::{Decision, Query, Role, Traffic};
pub use set::{ENGINES_MAX, Rules};
