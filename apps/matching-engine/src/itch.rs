//! The public view: events as messages of ITCH 5.0. Only displayed shares, trades and states show.
//!
//! | event | message |
//! |---|---|
//! | shares displayed, a reserve refilled | `A` |
//! | a displayed order traded | `E`; in a cross `C`, not printable, because `Q` counts it |
//! | a hidden order traded | `P`, without its reference; in a cross nothing but `Q` |
//! | displayed shares canceled | `X`, or `D` with the last |
//! | a displayed order replaced | `U`, or `D` where the new one does not rest at once |
//! | a cross, an imbalance, a state, a broken trade | `Q`, `I`, `H`, `B` |

use market::itch50::{
    AddOrder, BrokenTrade, CrossTrade, Head, Message, Noii, OrderCancel, OrderDelete, OrderExecuted,
    OrderExecutedAtPrice, OrderReplace, Trade, TradingAction,
};
use market::{Locate, Price, Side, Symbol};

use crate::event::{
    Body, Canceled, Crossed, Displayed, Event, Executed, Imbalance, Party, Removed, Replaced, TradingState,
};
use crate::order::CrossKind;

/// Turns events into ITCH messages.
#[derive(Clone, Debug)]
pub struct ItchView {
    symbols: Vec<Symbol>,
}

impl ItchView {
    /// For instruments of these names: the first has locate 1.
    pub fn new(symbols: Vec<Symbol>) -> Self {
        Self { symbols }
    }

    /// The name of an instrument; spaces where there is none.
    pub fn symbol(&self, locate: Locate) -> Symbol {
        let idx = usize::from(locate.0).wrapping_sub(1);
        self.symbols.get(idx).copied().unwrap_or_default()
    }

    /// Gives each message that shows `event`, at most two, to `emit`. Does not allocate.
    pub fn show(&self, event: &Event, emit: &mut impl FnMut(&[u8])) {
        let head = |kind| Head::new(kind, event.symbol, event.at_ns);
        let stock = self.symbol(event.symbol);
        match &event.body {
            Body::Displayed(displayed) => emit(Message::from(&add(head(AddOrder::KIND), stock, displayed)).as_bytes()),
            Body::Executed(executed) => show_executed(head, stock, executed, emit),
            Body::Canceled(canceled) => show_canceled(head, canceled, emit),
            Body::Replaced(replaced) => show_replaced(head, replaced, emit),
            Body::Crossed(crossed) => {
                emit(Message::from(&cross_trade(head(CrossTrade::KIND), stock, crossed)).as_bytes());
            }
            Body::Imbalance(imbalance) => emit(Message::from(&noii(head(Noii::KIND), stock, imbalance)).as_bytes()),
            Body::Broken(broken) if broken.is_first => {
                let message = BrokenTrade { head: head(BrokenTrade::KIND), trade: broken.match_number.into() };
                emit(Message::from(&message).as_bytes());
            }
            Body::StateChanged(state) => {
                if let Some(letter) = letter_of(*state) {
                    let head = head(TradingAction::KIND);
                    let message = TradingAction { head, stock, state: letter, reserved: b' ', reason: *b"    " };
                    emit(Message::from(&message).as_bytes());
                }
            }
            Body::Accepted(_) | Body::Rejected(_) | Body::Triggered(_) | Body::Broken(_) => {}
        }
    }
}

/// ITCH has no letter for an instrument that is closed: the system's events say it of all.
const fn letter_of(state: TradingState) -> Option<u8> {
    match state {
        TradingState::Closed => None,
        TradingState::Halted => Some(b'H'),
        TradingState::Quoting => Some(b'Q'),
        TradingState::Trading => Some(b'T'),
    }
}

/// Prices of the engine are at most [`PRICE_MAX`](crate::PRICE_MAX), which fits.
fn price4(price: Price) -> zerocopy::big_endian::U32 {
    u32::try_from(price.0).unwrap_or(0).into()
}

fn add(head: Head, stock: Symbol, displayed: &Displayed) -> AddOrder {
    AddOrder {
        head,
        order: displayed.order.reference.0.into(),
        side: displayed.order.side.to_wire(),
        shares: displayed.shares.into(),
        stock,
        price: price4(displayed.price),
    }
}

fn show_executed(head: impl Fn(u8) -> Head, stock: Symbol, executed: &Executed, emit: &mut impl FnMut(&[u8])) {
    let Executed { match_number, qty, price, ref maker, ref taker, cross } = *executed;
    match (cross, maker.displayed) {
        (Some(_), _) => {
            for party in [maker, taker].into_iter().filter(|party| party.displayed) {
                show_in_cross(head(OrderExecutedAtPrice::KIND), party, executed, emit);
            }
        }
        (None, true) => {
            let message = OrderExecuted {
                head: head(OrderExecuted::KIND),
                order: maker.order.reference.0.into(),
                shares: qty.into(),
                trade: match_number.into(),
            };
            emit(Message::from(&message).as_bytes());
        }
        (None, false) => {
            let message = Trade {
                head: head(Trade::KIND),
                order: 0.into(),
                // Nasdaq has not told the side of hidden orders since 2014.
                side: b'B',
                shares: qty.into(),
                stock,
                price: price4(price),
                trade: match_number.into(),
            };
            emit(Message::from(&message).as_bytes());
        }
    }
}

fn show_in_cross(head: Head, party: &Party, executed: &Executed, emit: &mut impl FnMut(&[u8])) {
    let message = OrderExecutedAtPrice {
        head,
        order: party.order.reference.0.into(),
        shares: executed.qty.into(),
        trade: executed.match_number.into(),
        printable: b'N',
        price: price4(executed.price),
    };
    emit(Message::from(&message).as_bytes());
}

fn show_canceled(head: impl Fn(u8) -> Head, canceled: &Canceled, emit: &mut impl FnMut(&[u8])) {
    let order = canceled.order.reference.0.into();
    match canceled.public {
        Removed::Nothing => {}
        Removed::Part(shares) => {
            let message = OrderCancel { head: head(OrderCancel::KIND), order, shares: shares.into() };
            emit(Message::from(&message).as_bytes());
        }
        Removed::All => {
            emit(Message::from(&OrderDelete { head: head(OrderDelete::KIND), order }).as_bytes());
        }
    }
}

fn show_replaced(head: impl Fn(u8) -> Head, replaced: &Replaced, emit: &mut impl FnMut(&[u8])) {
    let old = replaced.old.reference.0.into();
    match (replaced.was_displayed, replaced.displayed) {
        (true, Some(shares)) => {
            let message = OrderReplace {
                head: head(OrderReplace::KIND),
                old,
                new: replaced.new.reference.0.into(),
                shares: shares.into(),
                price: price4(replaced.price),
            };
            emit(Message::from(&message).as_bytes());
        }
        (true, None) => {
            emit(Message::from(&OrderDelete { head: head(OrderDelete::KIND), order: old }).as_bytes());
        }
        (false, _) => {}
    }
}

const fn cross_letter(kind: CrossKind) -> u8 {
    match kind {
        CrossKind::Opening => b'O',
        CrossKind::Closing => b'C',
        CrossKind::Halt => b'H',
    }
}

fn cross_trade(head: Head, stock: Symbol, crossed: &Crossed) -> CrossTrade {
    CrossTrade {
        head,
        shares: crossed.shares.into(),
        stock,
        price: price4(crossed.price),
        trade: crossed.match_number.into(),
        cross: cross_letter(crossed.kind),
    }
}

fn noii(head: Head, stock: Symbol, imbalance: &Imbalance) -> Noii {
    let direction = match (imbalance.side, imbalance.paired) {
        (Some(Side::Buy), _) => b'B',
        (Some(Side::Sell), _) => b'S',
        (None, 0) => b'O',
        (None, _) => b'N',
    };
    Noii {
        head,
        paired: imbalance.paired.into(),
        imbalance: imbalance.imbalance.into(),
        direction,
        stock,
        far: price4(imbalance.far),
        near: price4(imbalance.near),
        reference: price4(imbalance.reference),
        cross: cross_letter(imbalance.kind),
        variation: variation(imbalance.near, imbalance.reference),
    }
}

/// How far the near price is from the reference: a letter for each range of percent.
fn variation(near: Price, reference: Price) -> u8 {
    if near.0 == 0 || reference.0 == 0 {
        return b' ';
    }
    match near.0.abs_diff(reference.0) * 100 / reference.0.unsigned_abs() {
        0 => b'L',
        percent @ 1..=9 => b'0' + percent as u8,
        10..=19 => b'A',
        20..=29 => b'B',
        _ => b'C',
    }
}
