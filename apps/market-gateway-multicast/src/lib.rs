//! A market-data ring to other machines by UDP multicast. The publisher reads the ring like any
//! other process, so neither the network nor a listener can slow the feed.
//!
//! ```text
//!   ring ─ RingReader ─▶ Publisher: MoldUDP64 ─▶ group ─▶ Listener: as a reader of the ring
//!                           └ newest packets ─▶ re-request server ◀── what was lost
//! ```
//!
//! Messages ([`Message`]) are numbered from 1 on in a session that the publisher draws when it
//! starts; a record has its number in the ring too. [`Service`] and [`Receiver`] are the two ends
//! with kernel sockets; what they do is decided by [`Publisher`] and [`Listener`], which have none.
#![forbid(unsafe_code)]

mod listener;
mod message;
mod publisher;
mod receive;
mod service;

pub use listener::{Listener, ListenerConfig, ListenerCounts, ListenerHandler};
pub use message::{MESSAGE_LEN_MAX, Message, MessageError};
pub use publisher::{End, Outgoing, PACKET_LEN_MAX, Publisher, PublisherCounts, draw_session};
pub use receive::{Receiver, ReceiverConfig};
pub use service::{Service, ServiceConfig, ServiceError, Turn};
