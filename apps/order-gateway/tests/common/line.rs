//! A session whose line takes as many requests as a test says, and that says what a test has it
//! say.

use std::collections::VecDeque;

use market::Symbol;
use order_entry::journal::SessionMark;
use order_entry::orders::{OrderKey, OrderRules, VenueEvent, VenueMessage};
use order_entry::session::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};

/// Cancels each order by itself, as FIX does, or all by one message, as BOE 3.
#[derive(Debug)]
pub struct Line {
    next_id: u64,
    /// Requests that the line still takes.
    pub room: usize,
    /// Requests that it takes more when it has sent something.
    pub room_of_sent: usize,
    pub said: VecDeque<SessionEvent>,
    /// It cancels all orders by one message, which takes an id.
    pub has_mass_cancel: bool,
    /// The ids that cancels named.
    pub canceled: Vec<u64>,
    /// The symbols that requests named.
    pub symbols: Vec<Symbol>,
    /// How often it was asked to log out.
    pub log_outs: usize,
    /// No login is accepted.
    pub is_closed: bool,
    /// The venue has broken a rule: the session says which, and ends with its next tick.
    pub is_broken: bool,
    /// What it has to send: its Logout, and what a test puts there.
    pub out: Vec<u8>,
    /// What a new order writes.
    pub order: &'static [u8],
    /// What a cancel writes.
    pub cancel: &'static [u8],
    /// What was sent.
    pub left: Vec<u8>,
}

impl Line {
    pub fn new() -> Self {
        let (said, canceled, symbols) = (VecDeque::new(), Vec::new(), Vec::new());
        let (out, order, cancel, left) = (Vec::new(), &b""[..], &b""[..], Vec::new());
        Self {
            next_id: 1,
            room: usize::MAX,
            room_of_sent: 0,
            said,
            has_mass_cancel: false,
            canceled,
            symbols,
            log_outs: 0,
            is_closed: false,
            is_broken: false,
            out,
            order,
            cancel,
            left,
        }
    }

    pub fn say(&mut self, id: u64, event: VenueEvent) {
        let message = VenueMessage::answer(OrderKey::Client(id), event);
        self.said.push_back(SessionEvent::Message { number: 0, message });
    }

    fn take_id(&mut self) -> Result<(), SendError> {
        self.may_cancel()?;
        self.room -= 1;
        self.next_id += 1;
        Ok(())
    }
}

impl VenueSession for Line {
    fn rules(&self) -> OrderRules {
        OrderRules::default()
    }

    fn resume(&mut self, mark: &SessionMark) {
        self.next_id = mark.next_id;
    }

    fn mark(&self) -> SessionMark {
        SessionMark { next_id: self.next_id, ..SessionMark::default() }
    }

    fn connected(&mut self, _now_ns: u64) -> Result<(), SessionError> {
        Ok(())
    }

    fn disconnected(&mut self) {
        self.out.clear();
    }

    fn receive(&mut self, _now_ns: u64, _input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        Ok(self.said.pop_front())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SessionError> {
        if !self.is_broken {
            return Ok(());
        }
        self.out.extend_from_slice(b"which rule");
        Err(SessionError::new("a rule"))
    }

    fn is_open(&self) -> bool {
        !self.is_closed
    }

    fn next_id(&self) -> u64 {
        self.next_id
    }

    fn skip_id(&mut self, _now_ns: u64) {
        self.next_id += 1;
    }

    fn may_send(&self, _terms: &OrderTerms) -> Result<(), SendError> {
        self.may_cancel()
    }

    fn may_cancel(&self) -> Result<(), SendError> {
        if self.room == 0 { Err(SendError::Room) } else { Ok(()) }
    }

    fn new_order(&mut self, _now_ns: u64, order: &WireOrder) -> Result<(), SendError> {
        self.symbols.push(order.symbol);
        self.take_id()?;
        self.out.extend_from_slice(self.order);
        Ok(())
    }

    fn replace_order(&mut self, _now_ns: u64, _target: &WireTarget, _order: &WireOrder) -> Result<(), SendError> {
        self.take_id()
    }

    fn cancel_order(&mut self, _now_ns: u64, target: &WireTarget) -> Result<(), SendError> {
        self.take_id()?;
        self.canceled.push(target.id);
        self.out.extend_from_slice(self.cancel);
        self.symbols.push(target.symbol);
        Ok(())
    }

    fn cancel_all(&mut self, _now_ns: u64) -> Result<bool, SendError> {
        if self.has_mass_cancel {
            self.take_id()?;
        }
        Ok(self.has_mass_cancel)
    }

    fn ask_status(&mut self, _now_ns: u64, _target: &WireTarget) -> Result<bool, SendError> {
        Ok(true)
    }

    fn log_out(&mut self, _now_ns: u64) {
        self.log_outs += 1;
        // As one of FIX, it has a number, which is in the journal before it leaves.
        self.next_id += 1;
        self.out.extend_from_slice(b"logout");
    }

    fn to_send(&self) -> &[u8] {
        &self.out
    }

    fn sent(&mut self, len: usize) {
        self.left.extend(self.out.drain(..len));
        self.room += self.room_of_sent;
    }
}
