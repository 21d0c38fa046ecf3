//! A secret that both ends of a standby's connection have. Each proves that it has it before
//! anything else is said.
//!
//! ```text
//!  either ── challenge: 32 random bytes ──▶ the other
//!         ◀── proof: HMAC-SHA-256 of the challenge, behind a word for the end that answers
//! ```
//!
//! The word differs between the ends, and between a standby and a mirror, so that nobody can have a
//! proof by asking the end that asks him, nor an end of another kind of link (RFC 2104 for the
//! HMAC). Two pairs of one kind need a secret each: who stands between them can pass their proofs
//! on. What follows is neither signed nor encrypted: the secret keeps out who reaches the port, and
//! not who can change packets on their way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::host::{Listener, Stream, is_nothing};

/// A shorter secret could be guessed.
const LEN_MIN: usize = 16;
const VALUE_LEN: usize = 32;
const FRAME_LEN: usize = 5 + VALUE_LEN;
/// Frames of the standby's connection, whose length is little endian.
const CHALLENGE: [u8; 5] = [VALUE_LEN as u8, 0, 0, 0, b'C'];
const PROOF: [u8; 5] = [VALUE_LEN as u8, 0, 0, 0, b'P'];

/// A secret.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// The content of a file, without white space around it.
    ///
    /// # Errors
    ///
    /// It cannot be read, others can read it as well, or it is too short.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mode = fs::metadata(path).map_err(|error| error.to_string())?.mode();
        if mode & 0o077 != 0 {
            return Err(format!("others may read it, by its mode {:o}: chmod 600", mode & 0o777));
        }
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        Self::new(bytes.trim_ascii())
            .ok_or_else(|| format!("it has less than {LEN_MIN} bytes: openssl rand -hex 32 makes one"))
    }

    /// `None` where it has less than 16 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= LEN_MIN).then(|| Self(bytes.into()))
    }

    fn mac(&self, role: Role, challenge: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of HMAC has any length");
        mac.update(role.word());
        mac.update(challenge);
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Which end of the connection proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The gateway that trades, and listens for its standby.
    Primary,
    /// The one that has a copy.
    Standby,
    /// The gateway that trades, and writes the copy of its mirror, to which it connects.
    MirroredPrimary,
    /// The one whose copy is written.
    Mirror,
}

impl Role {
    const fn word(self) -> &'static [u8] {
        match self {
            Self::Primary => b"wirepath primary",
            Self::Standby => b"wirepath standby",
            Self::MirroredPrimary => b"wirepath mirrored primary",
            Self::Mirror => b"wirepath mirror",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Primary => Self::Standby,
            Self::Standby => Self::Primary,
            Self::MirroredPrimary => Self::Mirror,
            Self::Mirror => Self::MirroredPrimary,
        }
    }

    /// Whether this end connects, and so has one connection at a time.
    const fn dials(self) -> bool {
        matches!(self, Self::Standby | Self::MirroredPrimary)
    }
}

/// Peers that prove at once.
const WAITING_MAX: usize = 8;

/// A peer that has proved nothing within this time is none: the proof needs a round trip.
const PROOF_SPAN: Duration = Duration::from_millis(500);

/// Peers that prove `secret`, at the listener of this `role`.
pub fn proven(listener: Box<dyn Listener>, secret: Option<Secret>, role: Role) -> Box<dyn Listener> {
    match secret {
        Some(secret) => Box::new(Proven { listener, secret, role, waiting: RefCell::default() }),
        None => listener,
    }
}

#[derive(Debug)]
struct Proven {
    listener: Box<dyn Listener>,
    secret: Secret,
    role: Role,
    /// Peers that have not proved yet, oldest first, and since when. They keep nobody out.
    waiting: RefCell<VecDeque<(ProvenStream, Instant)>>,
}

impl Listener for Proven {
    /// The next peer that has proved the secret, or failed to: of that one a read says why.
    fn accept(&self) -> Option<Box<dyn Stream>> {
        let mut waiting = self.waiting.borrow_mut();
        self.welcome(&mut waiting);
        waiting.retain(|(_, since)| since.elapsed() < PROOF_SPAN);
        for idx in 0..waiting.len() {
            match waiting[idx].0.prove() {
                Err(error) if is_nothing(&error) => continue,
                Err(error) => waiting[idx].0.failed = Some(error.to_string()),
                Ok(()) => (),
            }
            return waiting.remove(idx).map(|(stream, _)| Box::new(stream) as Box<dyn Stream>);
        }
        None
    }
}

impl Proven {
    /// Takes a peer that has connected, in place of the oldest where there are too many.
    fn welcome(&self, waiting: &mut VecDeque<(ProvenStream, Instant)>) {
        if self.role.dials() && !waiting.is_empty() {
            return;
        }
        let Some(stream) = self.listener.accept() else { return };
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((ProvenStream::new(stream, self.secret.clone(), self.role), Instant::now()));
    }
}

/// A connection that neither reads nor writes before both ends have proved the secret.
#[derive(Debug)]
pub(super) struct ProvenStream {
    stream: Box<dyn Stream>,
    secret: Secret,
    role: Role,
    challenge: Option<[u8; VALUE_LEN]>,
    to_send: Vec<u8>,
    /// The other end's challenge and proof, as far as they have come.
    received: Vec<u8>,
    has_answered: bool,
    is_proven: bool,
    /// Why it was not proved.
    failed: Option<String>,
}

impl ProvenStream {
    pub(super) fn new(stream: Box<dyn Stream>, secret: Secret, role: Role) -> Self {
        let challenge = random();
        let to_send = challenge.map_or_else(Vec::new, |challenge| [&CHALLENGE[..], &challenge].concat());
        let received = Vec::with_capacity(2 * FRAME_LEN);
        let (has_answered, is_proven, failed) = (false, false, None);
        Self { stream, secret, role, challenge, to_send, received, has_answered, is_proven, failed }
    }

    /// Goes on with the proofs. Nothing to do now, where one of them is still to come.
    fn prove(&mut self) -> io::Result<()> {
        if self.is_open() {
            return Ok(());
        }
        if let Some(why) = &self.failed {
            return Err(io::Error::other(why.clone()));
        }
        // The challenge first: a peer without a secret says so then.
        self.send()?;
        self.receive()?;
        self.send()?;
        if self.is_open() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.to_send.is_empty() {
            let len = self.stream.write(&self.to_send).map_err(refused)?;
            self.to_send.drain(..len);
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.is_proven && self.has_answered && self.to_send.is_empty()
    }

    fn receive(&mut self) -> io::Result<()> {
        let Some(asked) = self.challenge else { return Err(io::Error::other(RANDOM)) };
        let mut buffer = [0; 2 * FRAME_LEN];
        // Not a byte of what comes behind.
        let room = 2 * FRAME_LEN - self.received.len();
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) if room > 0 => return Err(io::Error::other(CLOSED)),
            Ok(len) => self.received.extend_from_slice(&buffer[..len]),
            Err(error) if is_nothing(&error) => (),
            Err(error) => return Err(refused(error)),
        }
        let (challenge, proof) = self.received.split_at(self.received.len().min(FRAME_LEN));
        if !starts_alike(challenge, &CHALLENGE) || !starts_alike(proof, &PROOF) {
            return Err(io::Error::other(NONE));
        }
        if challenge.len() == FRAME_LEN && !self.has_answered {
            self.has_answered = true;
            let mac = self.secret.mac(self.role, &challenge[PROOF.len()..]).finalize().into_bytes();
            self.to_send.extend_from_slice(&PROOF);
            self.to_send.extend_from_slice(&mac);
        }
        if proof.len() == FRAME_LEN {
            let mac = self.secret.mac(self.role.other(), &asked);
            // In a time that does not tell how much of it is right.
            mac.verify_slice(&proof[PROOF.len()..]).map_err(|_| io::Error::other(ANOTHER))?;
            self.is_proven = true;
        }
        Ok(())
    }
}

const RANDOM: &str = "the kernel gives no random bytes to ask for a proof by";
const NONE: &str = "it proves no secret: give both ends the same `secret_file`";
const ANOTHER: &str = "its secret is another one: give both ends the same `secret_file`";
const CLOSED: &str = "it ended before it had proved the secret: have both ends the same `secret_file`?";

/// A peer that is content with no proof closes the connection; where bytes of ours were on their
/// way then, its kernel resets it.
fn refused(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => io::Error::other(CLOSED),
        _ => error,
    }
}

fn random() -> Option<[u8; VALUE_LEN]> {
    let mut bytes = [0; VALUE_LEN];
    let read = getrandom(&mut bytes[..], GetRandomFlags::empty());
    (read == Ok(VALUE_LEN)).then_some(bytes)
}

/// Whether `bytes` begin as `head` does, as far as there are any.
fn starts_alike(bytes: &[u8], head: &[u8]) -> bool {
    bytes.iter().zip(head).all(|(byte, wanted)| byte == wanted)
}

impl Read for ProvenStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.prove()?;
        self.stream.read(buffer)
    }
}

impl Write for ProvenStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.prove()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Stream for ProvenStream {
    fn is_open(&self) -> io::Result<bool> {
        self.stream.is_open()
    }

    fn reset(self: Box<Self>) -> io::Result<()> {
        self.stream.reset()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::rc::Rc;

    use super::*;

    /// One end of two queues of bytes.
    #[derive(Clone, Debug, Default)]
    struct Pipe {
        from: Rc<RefCell<VecDeque<u8>>>,
        to: Rc<RefCell<VecDeque<u8>>>,
    }

    impl Pipe {
        fn pair() -> (Self, Self) {
            let near = Self::default();
            let far = Self { from: near.to.clone(), to: near.from.clone() };
            (near, far)
        }
    }

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.from.borrow_mut().read(buffer)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                len => Ok(len),
            }
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.to.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Pipe {
        fn reset(self: Box<Self>) -> io::Result<()> {
            Ok(())
        }
    }

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).expect("it is long enough")
    }

    /// What a primary reads of a peer that says to be this side, and has this secret; or the error
    /// of whichever sees one first.
    fn heard(role: Role, text: &str) -> io::Result<usize> {
        let (near, far) = Pipe::pair();
        let mut primary = ProvenStream::new(Box::new(near), secret("0123456789abcdef"), Role::Primary);
        let mut peer = ProvenStream::new(Box::new(far), secret(text), role);
        let mut heard = Err(ErrorKind::WouldBlock.into());
        for _ in 0..6 {
            if let Err(error) = peer.write(b"F")
                && !is_nothing(&error)
            {
                return Err(error);
            }
            heard = primary.read(&mut [0; 8]);
            if !matches!(&heard, Err(error) if is_nothing(error)) {
                break;
            }
        }
        heard
    }

    #[test]
    fn ends_with_the_same_secret_hear_each_other() {
        assert_eq!(heard(Role::Standby, "0123456789abcdef").expect("the secret is the same"), 1);
    }

    #[test]
    fn end_with_another_secret_is_not_heard() {
        let error = heard(Role::Standby, "0123456789abcdeF").expect_err("the secret is another one");
        assert_eq!(error.to_string(), ANOTHER);
    }

    /// A connection that the other end has closed over bytes that it had not read.
    #[derive(Debug)]
    struct Reset;

    impl Read for Reset {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(ErrorKind::ConnectionReset.into())
        }
    }

    impl Write for Reset {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Reset {
        fn reset(self: Box<Self>) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn end_that_is_reset_before_a_proof_is_told_of_the_secret() {
        let mut end = ProvenStream::new(Box::new(Reset), secret("0123456789abcdef"), Role::Primary);
        assert_eq!(end.read(&mut [0; 8]).expect_err("it proves nothing").to_string(), CLOSED);
    }

    /// It could have had the primary prove its own challenge.
    #[test]
    fn proof_of_the_asking_end_is_none_of_the_other() {
        let error = heard(Role::Primary, "0123456789abcdef").expect_err("it says that it is the primary");
        assert_eq!(error.to_string(), ANOTHER);
    }

    /// The peers that have connected.
    #[derive(Debug)]
    struct Connected(RefCell<Vec<Pipe>>);

    impl Listener for Connected {
        fn accept(&self) -> Option<Box<dyn Stream>> {
            Some(Box::new(self.0.borrow_mut().pop()?))
        }
    }

    #[test]
    fn peers_that_prove_nothing_keep_no_standby_out() {
        let (near, far) = Pipe::pair();
        let strangers = (0..20).map(|_| Pipe::pair().0);
        let peers = Connected(RefCell::new([near].into_iter().chain(strangers).collect()));
        let listener = proven(Box::new(peers), Some(secret("0123456789abcdef")), Role::Primary);
        let mut standby = ProvenStream::new(Box::new(far), secret("0123456789abcdef"), Role::Standby);
        let accepted = (0..30).find_map(|_| {
            let _ = standby.write(b"F");
            listener.accept()
        });
        let mut accepted = accepted.expect("the standby has proved");
        let _ = standby.write(b"F");
        assert!(accepted.read(&mut [0; 8]).is_ok_and(|len| len > 0), "it is heard");
    }

    /// Else one who stands between a standby and a mirror with the same secret has both believe
    /// him.
    #[test]
    fn proof_of_a_mirror_is_none_of_a_standby() {
        let error = heard(Role::Mirror, "0123456789abcdef").expect_err("it is another kind of link");
        assert_eq!(error.to_string(), ANOTHER);
    }

    #[test]
    fn end_without_a_secret_is_told_that_it_needs_one() {
        let (near, mut far) = Pipe::pair();
        let mut primary = ProvenStream::new(Box::new(near), secret("0123456789abcdef"), Role::Primary);
        far.write_all(&[24, 0, 0, 0, b'F']).expect("a queue takes all");
        assert_eq!(primary.read(&mut [0; 8]).expect_err("it proves nothing").to_string(), NONE);
        let mut bytes = Vec::new();
        let _ = far.read_to_end(&mut bytes);
        let why = super::super::frame::Frame::parse(&bytes).expect_err("it is no frame of an end without one");
        assert!(why.contains("secret_file"), "{why}");
    }

    #[test]
    fn secret_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("secret");
        fs::write(&path, "0123456789abcdef\n").expect("there is room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it is ours");
        assert!(Secret::read(&path).expect_err("its group can").contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        Secret::read(&path).expect("nobody else can");
        fs::write(&path, "short").expect("there is room");
        assert!(Secret::read(&path).expect_err("it is short").contains("16 bytes"));
    }
}
