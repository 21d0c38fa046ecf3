//! `softhca run`: makes a mount namespace in which sysfs and `/dev` show the devices, and starts a
//! command in it with the preload library. Nothing outlives the processes, because the namespace
//! ends with them.

mod command;
mod counters;
mod displaced;
mod interfaces;
mod library;
mod mounts;
mod options;
#[allow(unsafe_code)]
mod sys;
mod tree;

pub(crate) use options::RunOptions;

use std::io;

use softhca::wire;

/// Why the command was not started.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The failure, its object, and what to do next.
    pub(crate) sentence: String,
    /// The code that a shell would return.
    pub(crate) exit_code: u8,
}

impl Failure {
    fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), exit_code: 125 }
    }
}

/// Runs the command to its end and gives its exit code.
pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let library = library::find()?;
    library::look_for_rdma_core();
    enter(options)?;
    let mut settings = options.settings()?;
    let counters = options.stats.then(counters::Directory::new).transpose()?;
    settings.counters = counters.as_ref().map(|directory| directory.path().to_owned());
    let interfaces = interfaces::make(&settings.devices)?;
    mounts::show(&tree::of(&settings.devices))?;
    let code = command::run(&options.command, &library, &settings)?;
    drop(interfaces);
    if let Some(counters) = counters {
        counters.print();
    }
    Ok(code)
}

/// Enters our own namespaces, whose mounts no other process sees.
fn enter(options: &RunOptions) -> Result<(), Failure> {
    if options.netns {
        sys::unshare(libc::CLONE_NEWNET).map_err(|error| privilege("a network namespace", &error))?;
        wire::raise("lo").map_err(|error| Failure::new(format!("lo cannot be brought up: {error}")))?;
    }
    sys::unshare(libc::CLONE_NEWNS).map_err(|error| privilege("a mount namespace", &error))
}

fn privilege(what: &str, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            Failure::new(format!("only root may make {what}: sudo softhca run …, or with CAP_SYS_ADMIN"))
        }
        _ => Failure::new(format!("no {what}: {error}")),
    }
}
