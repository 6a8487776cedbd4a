//! The mappings that are part of the program: tables that many have, by name. Each is a file of `shapes/`, in the format of a
//! user's own mapping. Nothing here knows what they say.

use figment::Figment;
use figment::providers::{Format as _, Toml};
use postrider::import::Mapping;

use crate::failure::{Failure, Result};

macro_rules! shapes {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shapes/", $name, ".toml")))),*]
    };
}

/// By name.
pub(super) const SHAPES: &[(&str, &str)] = shapes!(
    "supabase-outbox" "payment-outbox-pending" "modkit-outbox-events" "sync-outbox" "debezium" "masstransit" "wolverine"
    "cap" "gruelbox"
);

/// The text of a mapping by its name.
pub(super) fn text(name: &str) -> Result<&'static str> {
    SHAPES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| {
        let known: Vec<&str> = SHAPES.iter().map(|(name, _)| *name).collect();
        Failure::usage(format!("there is no mapping {name:?}"))
            .hint(format!("there are: {}; or write one and give --mapping FILE", known.join(", ")))
    })
}

/// Reads a mapping; `place` is told if it is wrong.
pub(super) fn read(text: &str, place: &str) -> Result<Mapping> {
    Figment::from(Toml::string(text)).extract().map_err(|error| {
        let faults: Vec<String> = error.into_iter().map(|fault| fault.to_string()).collect();
        Failure::usage(format!("{place} is not a mapping: {}", faults.join("; ")))
            .hint("`postrider import --from sync-outbox --print-mapping` shows one; docs/import.md tells every field")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_is_read_and_has_its_name() {
        for (name, text) in SHAPES {
            let mapping = read(text, name).unwrap();
            assert_eq!(mapping.name, *name);
            assert!(mapping.about.len() <= 70 && !mapping.about.contains('\n'), "{name}: {}", mapping.about);
        }
    }

    #[test]
    fn the_mapping_of_the_page_is_read() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/import.md")).unwrap();
        let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(read(block, "docs/import.md").unwrap().name, "mine");
    }
}
