-- Refunds units, but only before the deadline: afterwards they belong to a window that has ended. With 0 units, it only
-- asks for the time.
--
-- KEYS  the key
-- ARGV  units, deadline (us, by the server's clock)
-- reply the units refunded, and the server's time (us)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local refunded = 0
if tonumber(ARGV[1]) > 0 and now < tonumber(ARGV[2]) then
  refunded = redis.call('RL.REFUND', KEYS[1], ARGV[1])
end
return {refunded, now}
