//! The orders that rest, as a receiver of the feed knows them: the contents of an image.

use std::collections::BTreeMap;

use market::event::Event;
use market::itch50::{AddOrder, Head, Itch50, StockDirectory};
use market::{Codec, OrderRef, Price, Side, Symbol};
use zerocopy::IntoBytes;

/// One order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resting {
    pub(crate) side: Side,
    pub(crate) qty: u32,
    pub(crate) price: Price,
    pub(crate) symbol: Symbol,
    locate: market::Locate,
}

/// All of them, by their references.
#[derive(Debug, Default)]
pub(crate) struct RestingOrders {
    orders: BTreeMap<OrderRef, Resting>,
    /// The directory, as it was sent.
    directory: Vec<Box<[u8]>>,
    at_ns: u64,
}

impl RestingOrders {
    /// Applies a message of ITCH.
    pub(crate) fn apply(&mut self, message: &[u8]) {
        let Ok(event) = Itch50.decode(message) else { return };
        match event {
            Event::Add(add) => {
                self.at_ns = add.at_ns;
                let resting =
                    Resting { side: add.side, qty: add.qty, price: add.price, symbol: add.symbol, locate: add.locate };
                self.orders.insert(add.order, resting);
            }
            Event::Execute(execute) => self.lower(execute.order, execute.qty),
            Event::Cancel(cancel) => self.lower(cancel.order, cancel.qty),
            Event::Delete(delete) => {
                self.orders.remove(&delete.order);
            }
            Event::Replace(replace) => {
                if let Some(old) = self.orders.remove(&replace.old) {
                    self.orders.insert(replace.new, Resting { qty: replace.qty, price: replace.price, ..old });
                }
            }
            Event::Directory(_) => self.directory.push(message.into()),
            _ => {}
        }
    }

    /// All orders.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (OrderRef, &Resting)> {
        self.orders.iter().map(|(&order, resting)| (order, resting))
    }

    /// The image as messages of ITCH: the directory, and an add for each order.
    pub(crate) fn image(&self) -> Vec<Vec<u8>> {
        let directory = self.directory.iter().map(|message| message.to_vec());
        let orders = self.orders.iter().map(|(&order, resting)| {
            let add = AddOrder {
                head: Head::new(AddOrder::KIND, resting.locate, self.at_ns),
                order: order.0.into(),
                side: resting.side.to_wire(),
                shares: resting.qty.into(),
                stock: resting.symbol,
                price: (resting.price.0 as u32).into(),
            };
            add.as_bytes().to_vec()
        });
        directory.chain(orders).collect()
    }

    fn lower(&mut self, order: OrderRef, by: u32) {
        if let Some(resting) = self.orders.get_mut(&order) {
            resting.qty = resting.qty.saturating_sub(by);
            if resting.qty == 0 {
                self.orders.remove(&order);
            }
        }
    }
}

const _: () = assert!(StockDirectory::LEN == 39, "the directory's messages are kept as they are");
