//! What is declared beside a record. `records!`: the list of its columns, by which every statement and view names them (how a
//! column's value is read is `store/row.rs`). `setters!` and `texts!`: its methods that take and return it.

/// A record's columns; a field that is no column of its own says how it is read.
macro_rules! records {
    ($($record:ident ($row:ident) { $($field:ident $(: $value:expr)?),* $(,)? })*) => { $(
        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        impl $crate::store::row::FromRow for $record {
            fn from_row($row: &impl $crate::store::row::Row) -> Result<Self, $crate::error::Error> {
                Ok(Self { $($field: $crate::record::records!(@ $row $field $($value)?)),* })
            }
        }
    )* };
    (@ $row:ident $field:ident) => { $row.read(stringify!($field))? };
    (@ $row:ident $field:ident $value:expr) => { $value };
}
pub(crate) use records;

/// A method for each field that sets it. The structs are `non_exhaustive`: a field that comes later breaks nobody.
macro_rules! setters {
    ($record:ident: $($field:ident: $type:ty),* $(,)?) => {
        impl $record {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}
pub(crate) use setters;

/// A method for each optional text.
macro_rules! texts {
    ($record:ident: $($(#[$doc:meta])+ $method:ident => $field:ident,)+) => {
        impl $record {$(
            $(#[$doc])+
            #[must_use]
            pub fn $method(mut self, $field: impl Into<String>) -> Self {
                self.$field = Some($field.into());
                self
            }
        )+}
    };
}
pub(crate) use texts;
