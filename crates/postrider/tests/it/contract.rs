//! The store contract, on every store there is. The cases are in the testkit, under `contract/`.

mod postgres {
    use postrider_testkit::contract::OnPostgres;
    postrider_testkit::store_contract!(OnPostgres);
}

/// Proves E11: the embedded store keeps every promise that a database server keeps.
mod sqlite {
    use postrider_testkit::contract::OnSqlite;
    postrider_testkit::store_contract!(OnSqlite);
}
