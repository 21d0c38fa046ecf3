//! The file in which counters are shared: any content of another process is read or refused, never
//! trusted.

use std::io::Write;

use wirepath::counters::{Reading, Snapshot};

/// A file of any content.
pub(super) fn snapshot(data: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary directory takes a file");
    file.write_all(data).expect("the temporary directory takes a file");
    let snapshot = match Snapshot::read(file.path()) {
        Ok(snapshot) => snapshot,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for sample in &snapshot.samples {
        // Text that is printed on a terminal must not contain control characters.
        assert!(sample.name.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", sample.name);
        assert!(snapshot.sample(&sample.name).is_some());
        match &sample.reading {
            Reading::Counter(_) | Reading::Gauge(_) => {
                assert!(snapshot.change(&sample.name, &snapshot).is_none_or(|change| change.count == 0));
            }
            Reading::Text(text) => assert!(!text.chars().any(char::is_control), "{text:?}"),
            Reading::Histogram(distribution) => {
                for quantile in [0.0, 0.5, 0.99, 0.999, 1.0] {
                    assert!(distribution.quantile(quantile).is_none_or(|value| value <= distribution.max()));
                }
                assert_eq!(distribution.since(distribution).count(), 0);
            }
        }
    }
    assert!(!snapshot.app.chars().any(char::is_control), "{:?}", snapshot.app);
}
