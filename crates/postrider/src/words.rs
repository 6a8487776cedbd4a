//! Enums whose values are words in SQL, in JSON and on the command line. Each word is written once, where its enum is declared.
//! A word from a database that is none of them is an error, never a default.

use std::fmt;

/// A word that an enum does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    pub(crate) word: String,
    pub(crate) known: Vec<&'static str>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of {}", self.word, self.known.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

/// `enum Name { Variant = "word", … }`: with `ALL`, `as_str`, `FromStr`, `Display`, serde, and as a value of both databases.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[doc = concat!("`", $word, "`.")] $(#[$of])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word used in SQL and JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word).ok_or_else(|| {
                    let known = Self::ALL.iter().map(|one| one.as_str()).collect();
                    $crate::words::UnknownWord { word: word.to_owned(), known }
                })
            }
        }

        // Not derived: utoipa does not read a word that a macro passes on.
        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let words = Self::ALL.iter().map(|one| one.as_str());
                let kind = utoipa::openapi::schema::Type::String;
                utoipa::openapi::ObjectBuilder::new().schema_type(kind).enum_values(Some(words)).build().into()
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        impl PartialEq<&str> for $name {
            fn eq(&self, word: &&str) -> bool {
                self.as_str() == *word
            }
        }

        #[cfg(any(feature = "postgres", feature = "sqlite"))]
        impl $crate::store::row::Column for $name {
            #[cfg(feature = "postgres")]
            type Postgres = String;

            #[cfg(feature = "postgres")]
            fn from_postgres(word: String) -> Result<Self, $crate::error::Error> {
                word.parse().map_err(|word| $crate::store::row::unknown(&word))
            }

            #[cfg(feature = "sqlite")]
            fn from_sqlite(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
                value.as_str()?.parse().map_err(rusqlite::types::FromSqlError::other)
            }
        }

        #[cfg(feature = "postgres")]
        impl tokio_postgres::types::ToSql for $name {
            fn to_sql(
                &self,
                kind: &tokio_postgres::types::Type,
                out: &mut bytes::BytesMut,
            ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
                self.as_str().to_sql(kind, out)
            }

            fn accepts(kind: &tokio_postgres::types::Type) -> bool {
                <&str as tokio_postgres::types::ToSql>::accepts(kind)
            }

            tokio_postgres::types::to_sql_checked!();
        }

        #[cfg(feature = "sqlite")]
        impl rusqlite::ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                Ok(self.as_str().into())
            }
        }
    };
}
pub(crate) use words;
