use sqlx::{Connection, Executor, Row, PgConnection, postgres::PgConnectOptions};
use std::time::Instant;
macro_rules! layout { ($n:literal) => { ($n, include_str!(concat!("floor/",$n,"/schema.sql")), include_str!(concat!("floor/",$n,"/fill.sql")), include_str!(concat!("floor/",$n,"/claim.sql")), include_str!(concat!("floor/",$n,"/complete.sql"))) } }
async fn conn() -> anyhow::Result<PgConnection> {
    let o: PgConnectOptions = "postgres://postgres@127.0.0.1:5499/postgres".parse()?;
    let o = o.options([("enable_seqscan","off"),("enable_bitmapscan","off"),("enable_hashjoin","off"),("enable_mergejoin","off"),("jit","off"),("plan_cache_mode","force_generic_plan")]);
    Ok(PgConnection::connect_with(&o).await?)
}
async fn lsn(c: &mut PgConnection) -> i64 { sqlx::query_scalar("select (pg_current_wal_lsn() - '0/0')::bigint").fetch_one(c).await.unwrap() }
fn cpu() -> u64 { std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| { let s = std::fs::read_to_string(e.path().join("stat")).ok()?; if !s.contains("(postgres)") { return None; } let r = s.rsplit(')').next()?.split_whitespace().collect::<Vec<_>>(); Some(r[11].parse::<u64>().ok()? + r[12].parse::<u64>().ok()?) }).sum() }
#[tokio::main] pub async fn run() -> anyhow::Result<()> {
    let n: i64 = 200_000;
    let only = std::env::args().nth(1);
    for (name, schema, fill, claim, complete) in [layout!("one_table"), layout!("truth_and_place"), layout!("one_table"), layout!("truth_and_place"), layout!("one_table"), layout!("truth_and_place")] {
        if only.as_deref().is_some_and(|o| o != name) { continue; }
        let mut c = conn().await?;
        c.execute("drop schema if exists floor cascade").await?;
        c.execute(sqlx::raw_sql(schema)).await?;
        c.execute("insert into floor.workers select g, now() from generate_series(1,10) g; ").await?;
        let w0 = lsn(&mut c).await; let t = Instant::now();
        for _ in 0..200 { sqlx::query(fill).bind(n/200).execute(&mut c).await?; }
        let fill_wal = lsn(&mut c).await - w0; let ft = t.elapsed();
        c.execute("checkpoint").await?;
        // touch pages once after the checkpoint is unavoidable; report WAL without it in a second figure
        let w0 = lsn(&mut c).await; let u0 = cpu(); let t = Instant::now();
        let mut hs = vec![];
        for w in 1..=2i64 { hs.push(tokio::spawn(async move {
            let mut c = conn().await?; let mut k = 0i64; let mut total = 0usize;
            loop { k += 1;
                let rows = sqlx::query(claim).bind(w).bind(k).bind(500i64).fetch_all(&mut c).await?;
                if rows.is_empty() { break; }
                let ids: Vec<i64> = rows.iter().map(|r| r.get(0)).collect(); let seqs: Vec<i32> = rows.iter().map(|r| r.get(1)).collect();
                let mut q = sqlx::query(complete).bind(w).bind(k).bind(&ids).bind(&seqs);
                if complete.contains("$5") { q = q.bind(vec![k-1]); }
                let done = q.fetch_all(&mut c).await?; total += done.len();
            } anyhow::Ok(total) })); }
        let mut total = 0; for h in hs { total += h.await??; }
        let e = t.elapsed(); let wal = lsn(&mut c).await - w0; let u = cpu() - u0;
        println!("{name}: {total} rows {:.0}/s wal/row {} (fill {} at {:.0}/s) cpu/row {:.1}us", total as f64/e.as_secs_f64(), wal/total as i64, fill_wal/n, n as f64/ft.as_secs_f64(), u as f64*10_000.0/total as f64);
    }
    Ok(())
}
