//! Books that other machines READ by RDMA whenever they like, without a message to the feed handler
//! and without its worker.
//!
//! ```text
//!  worker ─▶ ExposeSink ─▶ slots ◀── answers READs ── thread with a port of its own ◀─▶ readers
//! ```
//!
//! A worker writes its books into slots ([`Publisher`]); a thread polls a port of its own, grants
//! connections by RDMA_CM, and answers READs from the slots. A reader needs nothing but the
//! connection: the private data of its REP is an [`Offer`](rdma::snapshot::Offer). The keys give
//! nothing but READs.

mod server;
mod sink;

use std::sync::Mutex;

use market::BookSnapshot;
use rdma::snapshot::{OFFER_PORT, Publisher, TABLES_MAX};

use crate::channels::Channels;
use crate::error::Error;
use crate::run::SinkContext;
use server::Server;
pub use sink::ExposeSink;

/// Where other machines read the books.
#[derive(Clone, Debug)]
pub struct ExposePlan {
    /// The port of this machine that RDMA goes by, as `wirepath rdma --via` names it.
    pub via: String,
    /// Where readers connect by RDMA_CM.
    pub port: u16,
    /// Books that have a slot, of each worker; its channels share them equally.
    pub books: usize,
    /// Readers at one time.
    pub readers: u32,
}

impl ExposePlan {
    /// A plan over a port, and all else by default.
    pub fn new(via: &str) -> Self {
        Self { via: via.to_owned(), port: OFFER_PORT, books: 16_384, readers: 64 }
    }
}

/// The slots of all workers, and the thread that answers for them. Ends with it.
pub(crate) struct Exposure {
    /// Of each worker that has not taken it yet, by its queue.
    publishers: Mutex<Vec<(u16, Publisher)>>,
    server: Server,
}

impl Exposure {
    /// Opens the port, and listens. This allocates the slots of all workers.
    pub(crate) fn open(plan: &ExposePlan, queues: &[u16]) -> Result<Self, Error> {
        if queues.len() > TABLES_MAX {
            return Err(Error::Usage(format!(
                "--expose is for up to {TABLES_MAX} queues, and {} are configured",
                queues.len()
            )));
        }
        let publisher = |&queue: &u16| (queue, Publisher::new(plan.books, BookSnapshot::LEN));
        let publishers: Vec<_> = queues.iter().map(publisher).collect();
        let regions = publishers.iter().map(|(_, publisher)| publisher.region()).collect();
        let server = Server::start(plan, regions)?;
        Ok(Self { publishers: Mutex::new(publishers), server })
    }

    /// The sink of a worker, once for each.
    pub(crate) fn sink(&self, context: &SinkContext) -> Result<ExposeSink, Error> {
        let mut publishers = self.publishers.lock().map_err(Error::failed)?;
        let idx = publishers.iter().position(|(queue, _)| *queue == context.queue);
        let idx = idx.ok_or_else(|| Error::Failed(format!("queue {} has no slots for its books", context.queue)))?;
        let channels = Channels::new(&context.plan.sets, &context.first_channels);
        Ok(ExposeSink::new(publishers.swap_remove(idx).1, channels, context.unix_offset_ns))
    }

    /// What an operator is told at the start.
    pub(crate) fn notice(&self, plan: &ExposePlan) -> String {
        let ExposePlan { via, port, books, .. } = plan;
        let at = self.server.address.map(|address| address.to_string());
        let host = at.as_deref().unwrap_or("HOST");
        format!("up to {books} books of a worker are read over {via}: `wirepath rdma books {host} --port {port}`")
    }
}
