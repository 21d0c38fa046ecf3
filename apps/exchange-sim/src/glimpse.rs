//! The GLIMPSE server: the open orders and the number with which the live feed continues, over
//! SoupBinTCP.
//!
//! The server has a thread of its own, as the re-request server has; the publisher hands packets
//! over and never waits. It serves one client after the other, each with all orders of that moment,
//! and then closes the connection.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use market::framing::Framing;
use market::framing::mold_udp64::MoldUdp64;
use market::itch50::glimpse::emit_end;
use order_entry::session::Output;
use order_entry::soupbin::LoginRejectReason::SessionNotAvailable;
use order_entry::soupbin::{Credentials, Server, ServerConfig, ServerEvent, SessionId, judge_login};

use crate::error::Error;
use crate::packetizer::Packet;
use crate::resting::RestingOrders;

/// How long the thread sleeps while nobody connects.
const IDLE: Duration = Duration::from_millis(2);
/// A client that neither reads nor writes for this long is left.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Packets queued for the thread, as those of the re-request server.
const QUEUE_LEN: usize = 50_000;
/// Room for a packet of SoupBinTCP.
const PACKET_ROOM: usize = 128;

/// The server's address, and who may log in.
#[derive(Clone, Debug)]
pub struct GlimpseSettings {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// User and password.
    pub credentials: Credentials,
}

/// The outcomes of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlimpseCounts {
    /// Snapshots that were sent whole.
    pub snapshots: u64,
    /// Orders in them.
    pub orders: u64,
    /// Connections that ended without one: a refused login, a broken connection.
    pub failed: u64,
    /// Packets that were not kept because the thread got no processor time for too long. Snapshots
    /// are wrong from then on, and none is sent.
    pub unkept: u64,
}

impl fmt::Display for GlimpseCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { snapshots, orders, failed, unkept } = self;
        write!(f, "{snapshots} snapshots with {orders} orders, {failed} connections without one")?;
        if *unkept > 0 {
            write!(f, "; {unkept} packets not in them")?;
        }
        Ok(())
    }
}

/// The publisher's handle of the server.
#[derive(Debug)]
pub(crate) struct GlimpseServer {
    queue: SyncSender<Arc<Packet>>,
    unkept: u64,
    thread: JoinHandle<GlimpseCounts>,
}

impl GlimpseServer {
    /// The server of the images of `session`. Binds the socket and starts the thread.
    pub(crate) fn start(session: SessionId, own: &GlimpseSettings) -> Result<Self, Error> {
        let failed = |error| Error::Socket {
            what: format!("cannot serve GLIMPSE at {} (name a free port of this host)", own.address),
            error,
        };
        let listener = TcpListener::bind(own.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (queue, packets) = sync_channel(QUEUE_LEN);
        let desk = Desk {
            session,
            packets,
            orders: RestingOrders::default(),
            next: 1,
            has_gap: false,
            counts: GlimpseCounts::default(),
        };
        let credentials = own.credentials;
        let thread = thread::Builder::new().name("glimpse".into());
        let thread = thread.spawn(move || desk.run(&listener, &credentials));
        let thread = thread.map_err(|error| Error::System(format!("cannot start the GLIMPSE thread: {error}")))?;
        Ok(Self { queue, unkept: 0, thread })
    }

    /// Hands over a packet of data that is being published. Never waits.
    pub(crate) fn keep(&mut self, packet: Arc<Packet>) {
        self.unkept += u64::from(self.queue.try_send(packet).is_err());
    }

    /// Ends it.
    pub(crate) fn stop(self) -> GlimpseCounts {
        drop(self.queue);
        let counts = self.thread.join().expect("the GLIMPSE server does not panic, whatever a client sends");
        GlimpseCounts { unkept: self.unkept, ..counts }
    }
}

/// The orders, and the work for one client.
struct Desk {
    /// That of the live feed.
    session: SessionId,
    packets: Receiver<Arc<Packet>>,
    orders: RestingOrders,
    /// The number after the last message that was applied.
    next: u64,
    /// A packet was not handed over: the orders are wrong for good.
    has_gap: bool,
    counts: GlimpseCounts,
}

impl Desk {
    fn run(mut self, listener: &TcpListener, credentials: &Credentials) -> GlimpseCounts {
        while self.take_packets() {
            match listener.accept() {
                Ok((client, _)) => {
                    let served = self.serve(client, credentials);
                    self.counts.failed += u64::from(served.is_err());
                }
                Err(_) => thread::sleep(IDLE),
            }
        }
        self.counts
    }

    /// False once the publisher has stopped.
    fn take_packets(&mut self) -> bool {
        for _ in 0..QUEUE_LEN {
            match self.packets.try_recv() {
                Ok(packet) => {
                    self.has_gap |= packet.sequence != self.next;
                    if let Ok(parsed) = MoldUdp64::parse(&packet.payload) {
                        parsed.messages().for_each(|message| self.orders.apply(message));
                    }
                    self.next = packet.sequence + u64::from(packet.count);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    /// Logs a client in, and sends it everything.
    fn serve(&mut self, mut client: TcpStream, credentials: &Credentials) -> io::Result<()> {
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let started = Instant::now();
        let now_ns = || started.elapsed().as_nanos() as u64;
        let mut soup = Server::new(ServerConfig::default());
        soup.connected(now_ns());
        let mut room = [0; PACKET_ROOM];
        let mut output = Output::new(&mut room);
        let mut bytes = [0; 256];
        let login = loop {
            let len = client.read(&mut bytes)?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let mut input = &bytes[..len];
            if let Some(ServerEvent::Login(login)) = soup.receive(now_ns(), &mut input).map_err(io::Error::other)? {
                break login;
            }
        };
        let session = self.session;
        // Packets that were published before the login are in the image.
        self.take_packets();
        let judged = judge_login(&login, credentials, session, 1);
        let judged = judged.and_then(|next| if self.has_gap { Err(SessionNotAvailable) } else { Ok(next) });
        if let Err(reason) = judged {
            soup.reject(now_ns(), reason, &mut output).map_err(io::Error::other)?;
            client.write_all(output.written())?;
            return Err(ErrorKind::PermissionDenied.into());
        }
        soup.accept(now_ns(), session, 1, &mut output).map_err(io::Error::other)?;
        let mut all = output.written().to_vec();
        let image = self.orders.image();
        for message in image.iter().map(Vec::as_slice).chain([&emit_end(self.next)[..]]) {
            output.clear();
            soup.send(now_ns(), message, &mut output).map_err(io::Error::other)?;
            all.extend_from_slice(output.written());
        }
        client.write_all(&all)?;
        self.counts.snapshots += 1;
        self.counts.orders += self.orders.iter().len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use market::framing::PacketKind;
    use market::framing::PacketWriter;
    use market::framing::mold_udp64::MoldHeader;
    use zerocopy::IntoBytes;

    use super::*;

    fn packet(sequence: u64) -> Arc<Packet> {
        let mut bytes = [0; 64];
        let header = MoldHeader::new(*b"SIM       ", sequence);
        let mut writer = PacketWriter::<MoldUdp64>::new(header, &mut bytes).unwrap();
        writer.push(b"S").unwrap();
        let payload = writer.finish().into();
        Arc::new(Packet { time_ns: 0, idx: 0, kind: PacketKind::Data, sequence, count: 1, payload })
    }

    /// The type of the server's answer to a login behind these packets.
    fn answer(numbers: &[u64]) -> u8 {
        let (queue, packets) = sync_channel(8);
        numbers.iter().for_each(|&number| queue.send(packet(number)).unwrap());
        let (session, orders) = (SessionId::new("SIM").unwrap(), RestingOrders::default());
        let mut desk = Desk { session, packets, orders, next: 1, has_gap: false, counts: GlimpseCounts::default() };
        let credentials = Credentials::new("USER", "SECRET").unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let login = credentials.login(SessionId::BLANK, 1);
        let mut bytes = vec![0, login.as_bytes().len() as u8 + 1, b'L'];
        bytes.extend_from_slice(login.as_bytes());
        client.write_all(&bytes).unwrap();
        let _ = desk.serve(listener.accept().unwrap().0, &credentials);
        let mut head = [0; 3];
        client.read_exact(&mut head).unwrap();
        head[2]
    }

    #[test]
    fn image_that_lacks_a_packet_is_not_sent() {
        assert_eq!((answer(&[1, 2]), answer(&[2]), answer(&[1, 3])), (b'A', b'J', b'J'));
    }
}
